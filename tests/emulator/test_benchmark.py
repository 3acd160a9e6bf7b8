"""The benchmark runs and measures what it claims; no test depends on speed."""

import json
import math
from types import SimpleNamespace

import pytest

from benchmarks.emulator import floor, measure
from benchmarks.emulator.__main__ import main
from benchmarks.emulator.kernels import BENCHMARKS, SLOW
from harness import emulator
from harness.emulator.native import execute
from harness.emulator.operations import find


@pytest.mark.nightly
def test_every_benchmark_computes_the_right_result(capsys):
    """``measure`` checks the result of an interpreted and of a compiled launch."""
    assert main(["--repeat", "1", "--json", "--only", "small-put", "--only", "reduction", "--only", "spin"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == ["small-put", "reduction", "spin"]
    for measured in figures.values():
        assert all(math.isfinite(value) and value > 0 for name, value in measured.items() if name != "title")
        assert measured["ratio_to_floor"] == pytest.approx(measured["ms"] / measured["floor_ms"])


@pytest.mark.nightly
def test_the_modes_of_a_benchmark_are_compared(capsys):
    assert main(["--modes", "--repeat", "1", "--json", "--only", "small-put"]) == 0
    taken = json.loads(capsys.readouterr().out)["small-put"]
    assert list(taken) == ["fast", "check", "weak", "race", "trace"]
    assert all(math.isfinite(ms) and ms > 0 for ms in taken.values())


def test_a_profile_names_classes_and_steps(capsys):
    assert main(["--repeat", "1", "--interpreted", "--profile", "--only", "put"]) == 0
    printed = capsys.readouterr().out
    assert "scheduling and launching" in printed
    assert "global_load_dwordx4" in printed
    assert "interpreted" in printed


def test_a_profile_of_native_code_times_each_instruction_by_itself():
    driver = emulator.activate()
    try:
        benchmark = BENCHMARKS["put"](driver)
        with measure.launches(driver) as seen:
            benchmark.launch()
            ((launch, _),) = seen.items()
            launch.program.heat.force(True)
            benchmark.launch()
        translation = launch.program.heat.translation
        translation.use_runs()
        before = translation.code.copy()
        assert (before[:, 0] == execute.RUN).any()
        printed = measure.profile(driver, benchmark, 1)
        assert (translation.code == before).all()
        benchmark.check()
    finally:
        emulator.deactivate()
    times = dict(line.strip().split(" ms  ", 1)[::-1] for line in printed.splitlines() if " ms  " in line)
    assert any(float(time) > 0 for name, time in times.items() if name.startswith("global_load_dwordx4"))


def test_there_is_a_benchmark_for_each_kind_of_work():
    assert {"put", "small-put", "all-gather", "reduction", "matmul", "attention", "spin"} == set(BENCHMARKS)
    assert {"large-matmul"} == set(SLOW)


@pytest.mark.parametrize(
    ("mnemonic", "operations"),
    [
        ("v_add_u32_e32", [("add", 4)]),
        ("s_add_u32", []),
        ("global_load_dwordx4", [("take", 16)]),
        ("buffer_store_short", [("put", 2)]),
        ("ds_read2_b64", [("take", 8), ("take", 8)]),
        ("ds_write_b8", [("put", 1)]),
        ("global_atomic_add", [("take", 4), ("put", 4)]),
        ("s_waitcnt", []),
        ("v_mfma_f32_32x32x8_f16", [("32x32x8", 4)]),
    ],
)
def test_what_numpy_would_do_for_an_instruction(mnemonic, operations):
    assert find(mnemonic, "gfx942")[0] is not None
    assert floor._operations(SimpleNamespace(mnemonic=mnemonic), "gfx942") == operations
