"""The programs of the published Gluon overview: as printed there, and they run.

``printed/`` holds them letter for letter, as the overview has them.
"""

import re
from pathlib import Path

import pytest

from tests.examples.programs import ROOT, run

PRINTED = Path(__file__).parent / "printed"
COMMANDS = {
    "usage": "torchrun --standalone --nproc_per_node=2 examples/published_usage.py",
    "message_passing": "python examples/published_message_passing.py",
}
# The lines of print that chose device and rendezvous; an added block stands in their place.
DEVICE_LINES = """
    device_id = rank % torch.cuda.device_count()
    dist.init_process_group(
        backend="nccl", rank=rank, world_size=world_size,
        init_method="tcp://127.0.0.1:29500",
        device_id=torch.device(f"cuda:{device_id}")
    )
"""
IMPORT = re.compile(r"^(?:import|from) .*\n", re.MULTILINE)
ADDED = re.compile(r"^ *# added\n.*?(?:^ *# as printed\n|\Z)", re.MULTILINE | re.DOTALL)


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def without_additions(text: str) -> str:
    """The program without its docstring and without what stands between ``# added`` and ``# as printed``."""
    return ADDED.sub("", text.split('"""\n', 1)[1])


@pytest.mark.parametrize("name", COMMANDS)
def test_as_printed(name):
    printed = (PRINTED / f"{name}.txt").read_text(encoding="utf-8").replace(DEVICE_LINES[1:], "")
    printed = printed.replace("import iris.", "import iris_under_test.")
    ours = without_additions((ROOT / f"examples/published_{name}.py").read_text(encoding="utf-8"))
    assert lines(IMPORT.sub("", ours)) == lines(IMPORT.sub("", printed))
    assert set(IMPORT.findall(ours)) >= set(IMPORT.findall(printed))


def test_device_lines_are_in_print():
    assert DEVICE_LINES[1:] in (PRINTED / "message_passing.txt").read_text(encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "line"), [("usage", "buffer holds 43.0"), ("message_passing", "Validation success")])
def test_it_runs(name, line, tmp_path):
    done = run(COMMANDS[name], tmp_path)
    assert done.returncode == 0, done.stderr
    assert line in done.stderr


@pytest.mark.nightly
def test_a_value_that_does_not_arrive_is_seen(tmp_path):
    done = run(COMMANDS["usage"], tmp_path, change=("data, to_rank=0", "data, to_rank=1"))
    assert done.returncode == 1, done.stderr
    assert "[0/2] buffer holds 42.0" in done.stderr


@pytest.mark.nightly
def test_as_printed_a_right_result_would_fail_its_check(tmp_path):
    """The docstring's reason for the line added before the check is true."""
    done = run(
        COMMANDS["message_passing"], tmp_path, change=("        source.fill_(42.0)\n        # as", "        # as")
    )
    assert done.returncode == 1, done.stderr
    assert "Validation failed!" in done.stderr
