"""Every example does what it says, and says so when its data is wrong."""

import runpy
import sys

import pytest

from tests.examples.programs import ROOT, run

MESSAGES = "python examples/06_message_passing/message_passing_gluon.py"
GATHER = "torchrun --standalone --nproc_per_node=2 examples/25_ccl_all_gather/example.py"


@pytest.mark.parametrize("options", ["", "-t fp16 -s 10000 -b 256 -p 1048576"])
def test_message_passing(options, tmp_path):
    done = run(f"{MESSAGES} {options}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Validation successful!") == 2


def test_message_passing_sees_one_wrong_element(tmp_path):
    change = ("consumer, mask=offsets < size)", "consumer, mask=offsets < size - 1)")
    done = run(f"{MESSAGES} -s 1000 -b 256 -p 1048576", tmp_path, change=change)
    assert done.returncode == 1
    assert "1 elements are wrong, first 999: 0.0 is not 48.0" in done.stderr


@pytest.mark.parametrize("options", [["-r", "3"], ["-b", "96"], ["-s", "0"]])
def test_message_passing_refuses_what_it_cannot_do(options, monkeypatch):
    program = runpy.run_path(str(ROOT / MESSAGES.split()[1]))
    monkeypatch.setattr(sys, "argv", [MESSAGES, *options])
    with pytest.raises(ValueError, match=f"got {options[1]}$"):
        program["arguments"]()


@pytest.mark.parametrize("options", ["", "--use_gluon -m 13 -n 70 --datatype bf16"])
def test_all_gather(options, tmp_path):
    done = run(f"{GATHER} --validate {options}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Validation successful!") == 2


def test_all_gather_sees_one_wrong_element(tmp_path):
    change = ("    wrong = 0\n", "    wrong = 0\n    gathered[5, 3] += ctx.get_rank()\n")
    done = run(f"{GATHER} --validate", tmp_path, change=change)
    assert done.returncode == 1
    assert done.stderr.count("1 of 262144 elements are wrong") == 1
    assert done.stderr.count("Validation successful!") == 1
