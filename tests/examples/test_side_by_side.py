"""The side-by-side programs: every way of each gives the same, on two ranks; and a lost element is seen."""

import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest

from tests.examples.programs import ROOT, run
from tests.iris.ranks import run_checks

FOLDER = ROOT / "examples/side_by_side"
HEAP = 1 << 24


def program(path: Path):
    """Return the program's module; it imports the ``ranks`` next to it, as when it is run."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location(f"side_by_side_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def put(ctx, rank, num_ranks):
    program(FOLDER / "put.py").main(ctx)


def get(ctx, rank, num_ranks):
    program(FOLDER / "get.py").main(ctx)


def accumulate(ctx, rank, num_ranks):
    program(FOLDER / "accumulate.py").main(ctx)


def message(ctx, rank, num_ranks):
    program(FOLDER / "message.py").main(ctx)


def all_gather(ctx, rank, num_ranks):
    program(FOLDER / "all_gather.py").main(ctx)


def collectives(ctx, rank, num_ranks):
    program(FOLDER / "collectives.py").main(ctx)


def a_wrong_collective_is_seen(ctx, rank, num_ranks):
    module = program(FOLDER / "collectives.py")
    module.PAIRS = ((module.sum_by_ccl, module.broadcast_by_torch),)
    with pytest.raises(AssertionError, match=f"rank {rank}, sum_by_ccl"):
        module.main(ctx)
    ctx.barrier()


def a_lost_element_is_seen(ctx, rank, num_ranks):
    """In those whose every rank looks: in the others one rank would fail and the rest would wait for it."""
    for name in ("put", "get", "all_gather"):
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            broken = Path(folder) / f"{name}.py"
            broken.write_text(text.replace("offsets < n", "offsets < n - 1"), encoding="utf-8")
            module = program(broken)
            with pytest.raises(AssertionError, match=f"rank {rank}, by_triton"):
                module.main(ctx)
        ctx.barrier()


SHOWN = [put, get, accumulate, message, all_gather, collectives]
CHECKS = [*SHOWN, a_lost_element_is_seen, a_wrong_collective_is_seen]


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=HEAP, emulated=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_two_emulated_ranks(failures, name):
    assert failures[name] == "", failures[name]


def test_every_program_is_checked():
    assert {check.__name__ for check in SHOWN} == {path.stem for path in FOLDER.glob("*.py")} - {"ranks"}


@pytest.mark.nightly
def test_as_a_command(tmp_path):
    done = run("python examples/side_by_side/message.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(" is here") == 4


@pytest.mark.parametrize("ranks", ["1", "0", "-1"])
def test_too_few_ranks_are_refused(ranks, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["put.py", "-r", ranks])
    with pytest.raises(SystemExit) as refused:
        program(FOLDER / "put.py").run(None)
    assert refused.value.code == 2
    assert f"--num_ranks must be at least 2, got {ranks}" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_failing_rank_is_an_exit_status(tmp_path):
    broken = ("1, mask=offsets < n)", "1, mask=offsets < n - 1)")
    done = run("python examples/side_by_side/message.py", tmp_path, change=broken)
    assert done.returncode == 1
    assert "by_triton: tensor" in done.stderr
