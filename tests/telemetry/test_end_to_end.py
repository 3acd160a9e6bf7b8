"""A whole run of the suite whose ranks are watched: evidence, reports, and that telemetry costs no verdict."""

import os
import sys

import pytest

from tests import python

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")

from harness.evidence import Verdict, read
from reports import render_html
from tests.telemetry import nvml
from tests.telemetry.standin import ROOT, needs_compiler, variables

pytestmark = needs_compiler


def run(folder, script, library, *options):
    """The put tests on two emulated ranks; evidence as read back."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.telemetry.pretend"]
    command += ["conformance/rma/test_put.py", "--ranks", "2", "--level", "gate", *options]
    done = python.run(
        [*command, "--evidence", str(folder / "evidence.jsonl")],
        cwd=ROOT,
        env={**os.environ, **variables(script.path, library)},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return read(folder / "evidence.jsonl")


def gpus_by_case(evidence):
    """The entries of both ranks around every case."""
    assert evidence.cases
    return [evidence.telemetry_of(case.id).gpus for case in evidence.cases]


@pytest.mark.nightly
def test_every_case_is_told_with_its_samples_by_each_worker(tmp_path, nvml_library):
    script = nvml.Nvml(tmp_path / "script")
    evidence = run(tmp_path, script, nvml_library, "-k", "fp16 or int32", "-n", "2")
    assert evidence.verdict() is Verdict.PASS
    assert len(evidence.groups) > 1
    # The ranks take a second to start, so samples exist before the first case.
    for gpus in gpus_by_case(evidence):
        assert [gpu["gpu"] for gpu in gpus] == [nvml.uuid(0), nvml.uuid(1)]
        assert all(gpu["gauges"]["power"] == [300.0, 300.0] for gpu in gpus)
    assert len(evidence.hardware) == 2
    assert sum(1 for record in evidence.telemetry if not record.cases) == 2
    assert "300 W" in render_html(evidence)
    assert sorted(script.logged()) == ["nvmlInitWithFlags"] * 2 + ["nvmlShutdown"] * 2


@pytest.mark.nightly
def test_a_recorder_that_crashes_fails_no_case(tmp_path, nvml_library):
    script = nvml.Nvml(tmp_path / "script")
    script.say("nvmlDeviceGetTemperature", 0, "abort")
    script.write()
    evidence = run(tmp_path, script, nvml_library, "-k", "fp16")
    assert evidence.verdict() is Verdict.PASS
    for gpus in gpus_by_case(evidence):
        assert all(gpu["reason"].startswith("the recorder process ended by signal 6") for gpu in gpus)
