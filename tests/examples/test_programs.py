"""The examples that are programs: each validates its data, and fails if one element is wrong."""

import json
import runpy
import sys

import pytest

from tests.examples.programs import ROOT, run

MESSAGES = "python examples/06_message_passing/message_passing_gluon.py"
START = "torchrun --standalone --nproc_per_node=2"
REDUCE = f"{START} examples/24_ccl_all_reduce/example.py"
GATHER = f"{START} examples/25_ccl_all_gather/example.py"
TRACED = f"{START} examples/32_gluon_all_gather_tracing/all_gather_tracing.py"


@pytest.mark.nightly
@pytest.mark.parametrize("options", ["", "-t fp16 -s 10000 -b 256 -p 1048576"])
def test_message_passing(options, tmp_path):
    done = run(f"{MESSAGES} {options}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Validation successful!") == 2


@pytest.mark.nightly
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


@pytest.mark.nightly
@pytest.mark.parametrize("options", ["", "--use_gluon -m 13 -n 70 --datatype bf16"])
def test_all_gather(options, tmp_path):
    done = run(f"{GATHER} --validate {options}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Validation successful!") == 2


@pytest.mark.nightly
def test_all_gather_sees_one_wrong_element(tmp_path):
    change = ("    wrong = 0\n", "    wrong = 0\n    gathered[5, 3] += ctx.get_rank()\n")
    done = run(f"{GATHER} --validate", tmp_path, change=change)
    assert done.returncode == 1
    assert done.stderr.count("1 of 262144 elements are wrong") == 1
    assert done.stderr.count("Validation successful!") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("options", ["", "--use_gluon --all_reduce_variant ring -m 13 -n 70"])
def test_all_reduce(options, tmp_path):
    done = run(f"{REDUCE} --validate {options}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Validation successful!") == 2


@pytest.mark.nightly
def test_all_reduce_detects_one_wrong_element(tmp_path):
    change = ("    wrong = 0\n", "    wrong = 0\n    total[5, 3] += ctx.get_rank()\n")
    done = run(f"{REDUCE} --validate", tmp_path, change=change)
    assert done.returncode == 1
    assert done.stderr.count("1 of 131072 elements are wrong") == 1
    assert done.stderr.count("Validation successful!") == 1


@pytest.mark.nightly
def test_traced_all_gather(tmp_path):
    done = run(f"{TRACED} --validate -m 64 -n 70", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Validation successful!") == 2
    for name, ranks in (("trace.json", 2), ("trace_rank0.json", 1), ("trace_rank1.json", 1)):
        events = json.loads((tmp_path / name).read_text(encoding="utf-8"))["traceEvents"]
        stores = [event for event in events if event["ph"] == "X" and event["name"] == "store"]
        # 4480 elements are 2 blocks of 4096; each goes to 2 ranks.
        assert len(stores) == ranks * 2 * 2
        assert sum(event["args"]["payload_size"] for event in stores) == ranks * 2 * 4480 * 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "values, to_rank, mask=mask)",
            "values, to_rank, mask=mask & (offsets != 9))",
            "2 of 8960 elements and 0 events",
        ),
        ("target, pid, step, mask)", "target, pid, step)", "0 of 8960 elements and 2 events"),
    ],
)
def test_traced_all_gather_detects_a_fault(old, new, message, tmp_path):
    done = run(f"{TRACED} --validate -m 64 -n 70", tmp_path, change=(old, new))
    assert done.returncode == 1
    assert done.stderr.count(f"{message} are wrong") == 2, done.stderr
