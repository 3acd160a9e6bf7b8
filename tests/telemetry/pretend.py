"""A pytest plugin that records telemetry of emulated ranks as if they had GPUs, through the NVML that is found."""

from types import SimpleNamespace

from fixtures import telemetry
from harness import devices
from tests.telemetry import nvml

GPUS = [SimpleNamespace(uuid=nvml.uuid(index), bus_id=nvml.bus_id(index)) for index in range(2)]
_session = telemetry.session


def pytest_configure(config):
    devices.kind("emulated").telemetry = devices.kind("cuda").telemetry
    telemetry.session = watched


def watched(config, device):
    """The session, watching two GPUs from its first use; the rank group, which has none, has nothing to add."""
    session = _session(config, device)
    if session.watch.__name__ != "ignored":
        session.watch(GPUS)
        session.watch = ignored
    return session


def ignored(gpus):
    """Instead of ``Session.watch``."""
