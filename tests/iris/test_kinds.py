"""Kinds of device on the library's host side: a further one is a class and a line in ``kinds.PLATFORMS``."""

from __future__ import annotations

import ast
import pathlib
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from triton.runtime import driver

import iris_under_test
from iris_under_test import hip
from iris_under_test.bench import worker
from iris_under_test.ccl import Config
from iris_under_test.drivers.base import BaseFabricDriver
from iris_under_test.drivers.fabric import get_fabric_driver
from iris_under_test.host.distributed.topology import FabricInfo, TopologyDiscovery
from iris_under_test.host.platform import current, kinds
from iris_under_test.host.platform.cuda.platform import CudaPlatform
from iris_under_test.host.platform.emulated.platform import EmulatedPlatform
from iris_under_test.host.platform.rocm.platform import RocmPlatform
from iris_under_test.host.platform.utils import get_device_id_for_rank

ROOT = pathlib.Path(iris_under_test.__file__).parent


class PaperRuntime:
    name = "paper"

    def device_id(self):
        return 5

    def device_count(self):
        return 9

    def arch(self, device):
        return f"origami {device}"


class PaperFabric(BaseFabricDriver):
    initialize = allocate_exportable = export_handle = import_and_map = cleanup_import = cleanup_local = None


class PaperPlatform:
    """A kind of device that no file of the library knows of."""

    clock_hz = 7

    @classmethod
    def of(cls, driver):
        return cls() if driver.get_active_torch_device().type == "meta" else None

    def name(self):
        return "A4"

    def device_id(self, rank):
        return rank + 5

    def xcd_count(self):
        return 3

    def runtime(self):
        return PaperRuntime()

    def fabric_driver(self):
        return PaperFabric()

    def gpu_facts(self, gpu_id):
        return {"name": f"sheet {gpu_id}", "fabric": FabricInfo("ream")}


def active(device):
    return SimpleNamespace(
        get_active_torch_device=lambda: torch.device(device), get_current_target=lambda: SimpleNamespace(arch="gfx942")
    )


@pytest.fixture
def paper(monkeypatch):
    monkeypatch.setattr(driver, "_active", active("meta"))
    monkeypatch.setattr(kinds, "PLATFORMS", [*kinds.PLATFORMS, PaperPlatform])


def test_a_further_kind_is_all_that_it_takes(paper):
    assert isinstance(current(), PaperPlatform)
    assert (hip.get_device_id(), hip.count_devices(), hip.get_arch_string(8)) == (5, 9, "origami 8")
    assert isinstance(get_fabric_driver(), PaperFabric)
    assert Config().num_xcds == 3
    assert get_device_id_for_rank(2) == 7
    assert worker._device_name() == "A4"
    with pytest.raises(RuntimeError, match="AMD devices only; the active device is paper"):
        hip.mem_create(1)


def test_its_topology(paper):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        (gpu,) = TopologyDiscovery().discover().gpus
    finally:
        dist.destroy_process_group()
    assert (gpu.gpu_id, gpu.name, gpu.fabric.cluster_uuid) == (5, "sheet 5", "ream")


def test_a_driver_of_no_known_kind_is_an_error_that_names_the_kinds(monkeypatch):
    monkeypatch.setattr(driver, "_active", active("meta"))
    with pytest.raises(RuntimeError, match="none of the known kinds of device: EmulatedPlatform, RocmPlatform, Cuda"):
        current()


@pytest.mark.parametrize(
    ("device", "hip_version", "kind"),
    [("cpu", None, EmulatedPlatform), ("cuda", None, CudaPlatform), ("cuda", "7.1.0", RocmPlatform)],
)
def test_each_driver_is_of_one_kind(monkeypatch, device, hip_version, kind):
    monkeypatch.setattr(driver, "_active", active(device))
    monkeypatch.setattr(torch.version, "hip", hip_version)
    matching = [platform for platform in (one.of(driver.active) for one in kinds.PLATFORMS) if platform is not None]
    assert [type(platform) for platform in matching] == [kind]
    assert matching[0].clock_hz == (1_000_000_000 if kind is CudaPlatform else 100_000_000)


OF_ONE_KIND = ("host/platform/cuda/", "host/platform/rocm/", "host/platform/emulated/")
SHOWN_TO_USERS = "host/platform/hip.py"
"""``get_rocm_version`` returns what torch was built for."""


def vendors_asked_for(source):
    """Return the lines that query torch or Triton for the device's vendor."""
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.version.hip", "torch.version.cuda")) or (
            isinstance(node, ast.Attribute) and node.attr == "backend"
        ):
            yield node.lineno


def test_only_a_kind_s_own_files_ask_which_vendor_it_is():
    files = [path for part in ("host", "drivers", "bench") for path in sorted((ROOT / part).rglob("*.py"))]
    asking = {
        str(path.relative_to(ROOT)) for path in files if list(vendors_asked_for(path.read_text(encoding="utf-8")))
    }
    assert {name for name in asking if not name.startswith(OF_ONE_KIND)} == {SHOWN_TO_USERS}
    assert len(asking) > 2


def test_the_lint_sees_a_planted_question():
    assert list(vendors_asked_for("x = 1\nif torch.version.hip:\n    pass\ny = target.backend == 'hip'")) == [2, 4]
