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
    """The session, watching two GPUs from its first use; the rank group, which has none, has nothing to add."""
    session = _session(config)
    if session.watch.__name__ != "ignored":
        session.watch(GPUS)
        session.watch = ignored
    return session


def ignored(gpus):
    """Instead of ``Session.watch``."""
