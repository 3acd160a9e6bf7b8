"""``iris-harness attribute``: a failed case on other GPUs and on its own again, with planted bad GPUs."""

import json
import os
import sys

import pytest

from command_line.commands import attribute
from command_line.commands.replay import Replay
from command_line.main import run as command
from command_line.preflight import check_request
from command_line.suite.process import Suite
from harness.devices import inventory
from tests.devices import fakes
from tests.evidence import samples

BAD = samples.failing_case()
OWN = list(samples.GPUS)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that sets up GPUs and cases: ``fails(gpus, times)`` states whether a case fails."""

    def made(count, code):
        plain = [{**gpu, "uuid": (OWN + [f"GPU-{n}" for n in range(9)])[n]} for n, gpu in enumerate(fakes.gpus(count))]
        monkeypatch.setattr(inventory, "_adopted", {})
        inventory.adopt("cuda", plain)
        monkeypatch.setattr(attribute.preflight, "check_software", lambda *_: None)
        request = check_request("cuda", "sm_90", "2", "gate", "iris_under_test")
        replay = Replay(BAD.nodeid, {"id": BAD.id}, request, tmp_path / "evidence.jsonl")
        monkeypatch.setattr(attribute, "recorded_cases", lambda *_: [replay])
        script = f"import os, sys\ngpus = os.environ['CUDA_VISIBLE_DEVICES'].split(',')\nprint(gpus)\n{code}"

        def start(replay, folder, variables):
            return Suite([sys.executable, "-c", script], folder / "log", {**os.environ, **variables})

        monkeypatch.setattr(attribute, "start", start)
        _, *rest = samples.red()
        records = [samples.run(device="cuda", arch="sm_90"), *rest[:-1], samples.hardware(), samples.telemetry(BAD)]
        return samples.write(tmp_path / "evidence.jsonl", [*records, rest[-1]])

    return made


def attributed(evidence, tmp_path):
    status = command(["attribute", str(evidence), "--output", str(tmp_path / "out")])
    [group] = json.loads((tmp_path / "out" / attribute.REPORT).read_text())["groups"]
    return status, group


@pytest.mark.parametrize(
    ("count", "code", "status", "answer"),
    [
        (4, f"sys.exit({OWN[1]!r} in gpus)", 0, attribute.GPUS),
        (4, "sys.exit(1)", 0, attribute.SOFTWARE),
        (4, "sys.exit(0)", 0, attribute.SOMETIMES),
        (4, f"sys.exit({OWN[1]!r} not in gpus)", 0, attribute.SOMETIMES),
        (3, "sys.exit(1)", 1, attribute.UNKNOWN),  # one other GPU is too few for two
        (4, "sys.exit(3)", 1, attribute.UNKNOWN),  # pytest broke
        (4, "os.kill(os.getpid(), 9)", 1, attribute.UNKNOWN),
    ],
    ids=["GPUs", "software", "passes again", "only elsewhere", "too few", "no verdict", "killed"],
)
def test_gpus_or_software(machine, tmp_path, capsys, count, code, status, answer):
    result, group = attributed(machine(count, code), tmp_path)
    assert (result, group["answer"]) == (status, answer)
    assert group["gpus"] == OWN
    assert not set(group["others"]) & set(OWN)
    assert f": {attribute.ANSWERS[answer]}" in capsys.readouterr().out
    again = tmp_path / "out" / f"{BAD.id}-again" / "log"
    assert again.read_text().startswith(str(OWN)), "the GPUs of the run, in the order of its ranks"


def test_a_gpu_of_another_machine_cannot_repeat_a_case(machine, tmp_path, monkeypatch):
    evidence = machine(4, "sys.exit(1)")
    inventory.adopt("cuda", fakes.gpus(4))
    result, group = attributed(evidence, tmp_path)
    assert (result, group["answer"], group["other_verdict"]) == (1, attribute.UNKNOWN, "fail")


def test_a_run_without_gpus_and_one_without_failures(tmp_path, capsys):
    evidence = samples.write(tmp_path / "evidence.jsonl", samples.red())
    assert command(["attribute", str(evidence), "--output", str(tmp_path / "out")]) == 2
    assert "only runs on GPUs can be attributed" in capsys.readouterr().err
    green = samples.write(tmp_path / "green.jsonl", samples.green())
    assert command(["attribute", str(green), "--output", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out").exists()
