"""The findings of ``iris-harness doctor`` on this machine and on machines where something is missing."""

import io
import json
import os
import secrets
import sys
from pathlib import Path

import pytest
from rich.console import Console

from command_line.commands import doctor
from harness.devices import inventory
from harness.ranks import leases
from tests.cli import fake_suite
from tests.devices import fakes


def printed(findings):
    console = Console(file=io.StringIO(), width=140)
    doctor.show(findings, console)
    return console.file.getvalue()


@pytest.mark.slow
def test_this_machine(tmp_path):
    done = fake_suite.run(fake_suite.ROOT, tmp_path, "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads(done.stdout)
    assert {device["name"] for device in findings["devices"]} == {"emulated", "rocm", "cuda"}
    assert findings["devices"][0] == {"name": "emulated", "ok": True, "reason": ""}
    assert "amd" in findings["triton"]["backends"]
    assert findings["torch"]["version"]
    assert all(package["ok"] for package in findings["packages"])
    assert {check["name"] for check in findings["checks"]} == {"cores", "shared memory", "py-spy", "bytecode"}


@pytest.fixture
def examined(monkeypatch):
    """Return a function that examines the machine with a given probe result and given installed versions."""

    def examine(torch=None, triton=None, versions=None):
        probe = {
            "torch": torch or {"version": "2.13.0+cpu", "cuda": None, "hip": None},
            "triton": triton or {"version": "3.9.0", "backends": ["amd", "nvidia"]},
        }
        monkeypatch.setattr(doctor, "_probe", lambda: probe)
        real = doctor.installed_version
        monkeypatch.setattr(doctor, "installed_version", lambda name: {**(versions or {})}.get(name, real(name)))
        return doctor.examine()

    return examine


def test_a_package_out_of_range_is_named_with_its_remedy(examined):
    findings = examined(versions={"triton": "3.10.0"})
    assert not findings.can_run("emulated")
    assert "triton" in findings.devices[0].reason
    assert "pip install 'triton<3.10,>=3.6'" in printed(findings)


def test_a_torch_that_does_not_import_is_reported(examined):
    findings = examined(torch={"error": "OSError: libtorch.so is damaged"})
    assert not findings.can_run("emulated")
    assert "libtorch.so is damaged" in printed(findings)


def test_a_triton_without_the_amd_backend_is_reported(examined):
    findings = examined(triton={"version": "3.9.0", "backends": ["nvidia"]})
    assert not findings.can_run("emulated")
    assert "no AMD backend" in findings.devices[0].reason


def test_gpus_are_reported_with_peer_access_holder_and_telemetry(examined, monkeypatch):
    gpus = fakes.gpus(3, tag=secrets.token_hex(4))
    gpus[2]["peers"] = [0]
    monkeypatch.setattr(inventory, "_facts", lambda: fakes.facts(gpus))
    lease = leases.acquire(inventory.visible("cuda"), 1, 0, lambda line: None)
    try:
        findings = examined(torch={"version": "2.11.0+cu130", "cuda": "13.0", "hip": None})
        text = " ".join(printed(findings).split())
    finally:
        lease.release()
    assert findings.can_run("cuda") and findings.gpus[0]["holder"] == os.getpid()
    assert (
        f"GPU 0 NVIDIA H200, sm_90, 141 GiB, 0000:1b:00.0, peer access to all others, held by pid {os.getpid()}" in text
    )
    assert "GPU 1 NVIDIA H200, sm_90, 141 GiB, 0000:1c:00.0, peer access to all others GPU" in text
    assert "GPU 2 NVIDIA H200, sm_90, 141 GiB, 0000:1d:00.0, no peer access to 1" in text
    assert "telemetry nvidia-ml-py is" in text
    assert "emulate not for programs that import this build of torch: install PyTorch's CPU build" in text
    as_json = json.loads(doctor.as_json(findings))
    assert as_json["gpus"][2]["peers"] == [0] and as_json["checks"][-1]["name"] == "telemetry"


def test_missing_bytecode_is_reported(tmp_path, monkeypatch):
    """On a GPU node without it, the ranks of a group took 12 s to import PyTorch, instead of 2."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    (check,) = doctor._bytecode()
    assert not check.ok and str(tmp_path) in check.value and "PYTHONPYCACHEPREFIX" in check.advice
    place = Path(check.value.removeprefix("PyTorch has none in "))
    place.mkdir(parents=True)
    (place / f"__init__.{sys.implementation.cache_tag}.pyc").touch()
    (check,) = doctor._bytecode()
    assert check.ok


def test_a_probe_that_crashes_is_reported(monkeypatch):
    monkeypatch.setattr(doctor, "_PROBE", "import os; os.abort()")
    assert "status -6" in doctor._probe()["torch"]["error"]


@pytest.mark.slow
def test_status_is_1_when_not_even_the_emulated_device_runs(tmp_path):
    blocker = tmp_path / "triton"
    blocker.mkdir()
    (blocker / "__init__.py").write_text("raise ImportError('planted')")
    done = fake_suite.run(tmp_path, tmp_path, "doctor")
    assert done.returncode == 1, done.stdout
    assert "planted" in done.stdout
