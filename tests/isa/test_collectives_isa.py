"""Machine code of collectives: docs/collectives-isa.md agrees with the benchmark, and all accesses are wide."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
import triton

from benchmarks import flat_2d
from benchmarks.collective_kernels import COLUMNS, KERNELS, WARPS
from benchmarks.collectives_isa import YARDSTICK, main, selected
from benchmarks.device_isa import TARGETS
from benchmarks.one_process import World
from harness import emulator
from iris_under_test.ccl import Config
from tests import python

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "collectives-isa.md").read_text(encoding="utf-8")
ATOMICS = {"all_reduce atomic in triton", "all_reduce atomic in gluon", "matmul_all_reduce atomic in triton"}
"""A GPU has atomics of 4 and 8 bytes."""
BOTH_PATHS = {"send and receive in triton", "send and receive in gluon"}
"""The code, of which nothing is executed here, also has a way for tensors that are not aligned."""

LL = {f"{name} in {language}" for name in KERNELS if name.endswith(" ll") for language in ("triton", "gluon")}
"""4 bytes of data and 4 bytes of flag, which memory writes in one piece."""

# One that pushes, and one that also pulls.
FEW = ("flat-2D all_gather", "broadcast")


def tables(text: str) -> dict[str, dict[tuple[str, str], dict[str, str]]]:
    """Target -> (kernel, language) -> column -> cell."""
    by_section: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    for section in text.split("\n## ")[1:]:
        head, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines()
            if line.startswith("|")
        ]
        cells = [dict(zip(head, row, strict=True)) for row in rows]
        by_section[section.split()[0]] = {(row["kernel"], row["language"]): row for row in cells}
    return by_section


def check(table: dict[tuple[str, str], dict[str, str]]) -> None:
    """A tile has as many accesses as the kernel's plan states, all of 16 bytes, and that many bytes per element."""
    for (name, language), row in table.items():
        kernel = KERNELS[name]
        if kernel.loads is None or kernel.stores is None or "accesses of a tile" not in row:
            continue
        loads, stores, _ = row["accesses of a tile"].split(" · ")
        pieces = kernel.rows * COLUMNS * kernel.dtype.itemsize // (16 * 64 * WARPS)  # of 16 bytes of a lane, in a tile
        wanted = tuple(f"{pieces * times / kernel.programs:g} x 16" for times in (kernel.loads, kernel.stores))
        assert (loads, stores) == wanted, (name, language, row)
        moved = sum(float(part) for cell in ("loaded B", "stored B") for part in row[cell].split(" · "))
        wide = (kernel.loads + kernel.stores) * kernel.dtype.itemsize / kernel.count
        assert moved == pytest.approx(wide, rel=0.01), (name, language, row)


def misses(section: str, heading: str) -> set[str]:
    (line,) = re.findall(f"^{heading}: (.*)\\.$", section, re.MULTILINE)
    return set(line.split(", ")) - {"none"}


def test_the_page_is_whole_and_every_access_is_16_bytes_wide():
    page = tables(PAGE)
    assert list(page) == list(TARGETS)
    for (arch, table), section in zip(page.items(), PAGE.split("\n## ")[1:], strict=True):
        assert list(table) == [(name, language) for name, language, _ in selected()]
        check(table)
        assert float(table[YARDSTICK].get("x yardstick", 1)) == 1
        assert misses(section, "Narrow remote loads or stores") <= LL | (BOTH_PATHS if arch == "sm_90" else ATOMICS), (
            arch
        )
        # Of scalar registers too. ptxas keeps a turn number on the stack.
        spilt = {key: sum(map(int, row["spills"].split(" + "))) for key, row in table.items()}
        assert max(spilt.values()) <= (8 if arch == "sm_90" else 0), {key: n for key, n in spilt.items() if n}


@pytest.mark.nightly
def test_the_page_says_what_is_executed_now():
    done = python.run(
        [sys.executable, "-m", "benchmarks.collectives_isa", "--only", *FEW, "--arch", "gfx942", "sm_90"],
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    page, now = tables(PAGE), tables(done.stdout)
    for arch in ("gfx942", "sm_90"):
        assert set(now[arch]) == {(name, language) for name, language, _ in selected(FEW)}
        check(now[arch])
    if f"with Triton {triton.__version__}." not in PAGE:
        pytest.skip(f"the page is about another Triton than {triton.__version__}")
    for arch in ("gfx942", "sm_90"):
        assert {key: page[arch].get(key) for key in now[arch]} == now[arch]


def test_ranks_in_one_process_and_the_yardstick_gather():
    """The kernel to which all others are compared is correct: ragged shape, two tiles for one program."""
    world = World(2, heap_size=1 << 16)
    outputs, inputs = world.tensors((2 * 3, 48), torch.int32), world.tensors((3, 48), torch.int32)
    for rank, values in enumerate(inputs):
        values.copy_(1000 * rank + torch.arange(3 * 48).view(3, 48))
    emulator.activate("gfx942")
    try:
        config = Config(block_size_m=2, block_size_n=128, comm_sms=1, num_warps=1)
        world.run(lambda rank: flat_2d.launch(rank, (outputs[rank.cur_rank], inputs[rank.cur_rank]), config))
    finally:
        emulator.deactivate()
    for gathered in outputs:
        assert torch.equal(gathered, torch.cat(inputs))
    with pytest.raises(MemoryError, match="are left"):
        world.tensors((1 << 14,), torch.int32)


def test_a_name_that_no_kernel_has_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "nothing"])
    assert "no kernel has one of ['nothing']" in capsys.readouterr().err
