"""A pytest plugin that has the emulated ranks of a run watched like GPUs, through whatever NVML is found."""

from types import SimpleNamespace

from fixtures import telemetry
from tests.telemetry import nvml

GPUS = [SimpleNamespace(uuid=nvml.uuid(index), bus_id=nvml.bus_id(index)) for index in range(2)]
_session = telemetry.session


def pytest_configure(config):
    telemetry.SOURCES = {"emulated": "nvml"}
    telemetry.session = watched


def watched(config):
    session = _session(config)
    session.watch(GPUS)
    return session
