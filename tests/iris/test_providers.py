"""Every heap provider passes the same checks; wrong base tables and leaks do not."""

from __future__ import annotations

import pytest

from harness import devices
from harness.devices import inventory
from harness.ranks import RankGroup
from tests.gpu import rig
from tests.iris import providers

PROVIDERS = {
    "emulated": {},
    "emulated vmem": {"IRIS_ALLOCATOR": "vmem"},
    "symmetric_memory": {"IRIS_HEAP_PROVIDER": "symmetric_memory"},
    "ipc": {"IRIS_HEAP_PROVIDER": "ipc"},
    "vmem": {"IRIS_ALLOCATOR": "vmem"},
}
ROOM = {"descriptors": 4, "mappings": 0, "ranges": 0, "memory": 16 << 20}


@pytest.fixture(scope="module", params=PROVIDERS)
def ranks(request):
    name = "emulated" if request.param.startswith("emulated") else rig.device()
    if name != "emulated" and (reason := rig.reason()):
        pytest.skip(reason)
    arch = None if name == "emulated" else inventory.visible(name)[0].arch
    device = devices.known(name, arch)
    options = {"backend": device.backend, "device": name, "arch": device.arch, "implementation": "iris_under_test"}
    setup = "fixtures.worker:setup"
    with RankGroup(2, setup=setup, options=options, environment=PROVIDERS[request.param]) as group:
        yield group


def report_of(ranks, check, **payload):
    return ranks.call(f"tests.iris.providers:{check}", payload, deadline=120)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in providers.CHECKS])
def test_provider(ranks, check):
    assert report_of(ranks, check, **ROOM) == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("plant", ["swap", "shift"])
def test_a_wrong_base_table_is_noticed(ranks, plant):
    assert all(
        "through the table" in (text or "") for text in report_of(ranks, "table_after_every_allocation", plant=plant)
    )


def test_a_leak_is_noticed(ranks):
    assert all("grown: " in (text or "") for text in report_of(ranks, "cycles", plant="keep", cycles=5, **ROOM))
