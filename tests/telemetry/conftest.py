import sys

import pytest

from tests.telemetry import amd
from tests.telemetry.standin import variables


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory):
    from tests.telemetry import nvml

    return nvml.build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml_script(tmp_path, nvml_library, monkeypatch):
    """Two GPUs of a stand-in NVML, which recorders started by this test find in place of the real one."""
    from tests.telemetry import nvml

    script = nvml.Nvml(tmp_path / "script")
    for name, value in variables(script.path, nvml_library).items():
        if name != "PYTHONPATH":  # the recorder takes it from sys.path
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return script


@pytest.fixture(scope="session", params=[amd.INSTALLED, *amd.FURTHER])
def amd_package(request, tmp_path_factory):
    """amdsmi of several ROCm versions, each with a stand-in libamd_smi.so."""
    cache = request.config.cache.mkdir("amdsmi")
    return amd.package(request.param, tmp_path_factory.mktemp(f"amdsmi-{request.param}"), cache)


@pytest.fixture
def amd_script(tmp_path, amd_package, monkeypatch):
    """Two GPUs of it, which recorders started by this test find in place of real ones."""
    script = amd.Amd(tmp_path / "script", amd_package)
    for name, value in amd_package.variables(script.path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", [str(amd_package.place), *sys.path])
    return script
