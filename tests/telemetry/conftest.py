import sys

import pytest

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
