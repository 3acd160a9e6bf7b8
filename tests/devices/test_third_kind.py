"""A third kind of GPU needs one class and one line of the table, and no change elsewhere."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from command_line import preflight
from command_line.commands import doctor
from fixtures import outcome, telemetry
from fixtures.needs import Needs, of_item
from fixtures.options import Options
from fixtures.plugin import pytest_addoption
from fixtures.rig import uses_gpus
from harness import devices
from harness.devices import inventory, launches, occupancy, probe, table
from harness.devices.gpu_kind import GpuKind
from harness.errors import KernelFault, UsageError
from harness.evidence import APART, ONE_PROCESS, capture_environment, read, relevant_variables
from harness.evidence.environment import installed_version
from harness.oracles import reference
from harness.ranks import RankCrash, generation, keeper, leases
from harness.telemetry import Library
from tests.devices import fakes
from tests.evidence import samples


class Xpu(GpuKind):
    """A kind of GPU of a vendor that the harness does not support."""

    name = "xpu"
    archs = ("xe3",)
    lanes = 16
    vendor = "Acme"
    build = "XPU"
    runtime = "SYCL"
    version_key = "sycl"
    torch_type = "xpu"
    backend = "xccl"
    library = "XCCL"
    library_prefixes = ("XCCL_",)
    masks = ("XPU_SELECTOR",)
    outer_masks = ("XPU_OUTER",)
    tool = "xpu-smi"
    faults = ("SYCL error",)
    crash_lines = ("ACME ABORT",)
    listing = ".xeisa"
    binary = ".zebin"
    triton_backend = "acme"
    triton_packages = ("hypothesis",)
    packages = ("xpu-tools",)
    variables = ("XPU_QUEUES",)
    variable_prefixes = ("XPU_",)
    telemetry = Library("xpusmi", source="xpu_source", module="json", package="xpu-smi")

    def driver_facts(self):
        return {"xpu_driver": False}

    def missing_driver(self, facts):
        return None if facts["xpu_driver"] else "there is no Acme driver: load acme"

    def arch_of(self, properties):
        return properties.architecture

    def bus_id_of(self, index):
        return f"0000:0{index}:00.0"

    def visibility(self, gpus, caller):
        return {"XPU_SELECTOR": ":".join(str(gpu.index) for gpu in gpus)}

    def memory_in_use(self, gpu):
        return 4096 + gpu.index

    def users_of(self, gpu):
        return [(1, 4096)]

    def shared_memory(self, pid):
        return f"acme-{pid}-"

    def usage(self, files):
        return "REG:7"


FACTS = {"sycl": "2026.1", "torch": "2.13.0+xpu", "cuda": None, "hip": None, "xpu_driver": True}


@pytest.fixture(autouse=True)
def xpu(monkeypatch):
    kind = Xpu()
    monkeypatch.setitem(table.KINDS, kind.name, kind)
    return kind


@pytest.fixture
def machine(monkeypatch):
    """Set the answer of the inventory's child process."""

    def become(count=2, **changes):
        gpus = fakes.gpus(count, arch="xe3", name="Acme One", device="xpu", tag=f"xpu-{os.getpid()}")
        monkeypatch.setattr(inventory, "_facts", lambda: fakes.facts(gpus, **{**FACTS, **changes}))

    return become


def refusal(call, *arguments, **keywords):
    with pytest.raises(UsageError) as caught:
        call(*arguments, **keywords)
    return str(caught.value)


def test_it_is_known_by_name(xpu):
    device = devices.known("xpu")
    assert (device.name, device.arch, device.lanes, device.kind) == ("xpu", "xe3", 16, xpu)
    assert (
        device.backend == "cpu:gloo,xpu:xccl" and devices.known("xpu", ranks_per_gpu=2).backend == "cpu:gloo,xpu:gloo"
    )
    assert refusal(devices.known, "xpu", "xe9") == "device xpu has no arch 'xe9'; choose one of xe3"
    assert refusal(devices.known, "tpu").endswith("choose one of emulated, rocm, cuda, xpu")
    assert "has no modes" in refusal(devices.known, "xpu", mode="check")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"torch": None}, "the package torch is not installed: install its XPU build"),
        ({"sycl": None}, "torch 2.13.0+xpu is not a XPU build: install torch from the XPU wheel index"),
        ({"xpu_driver": False}, "there is no Acme driver: load acme"),
        ({}, "no Acme GPU is visible: see the output of xpu-smi"),
    ],
)
def test_what_is_missing(machine, changes, reason):
    machine(0, **changes)
    assert refusal(devices.get, "xpu") == f"device xpu cannot be used here: {reason}"


def test_a_mask_that_hides_everything_is_named(machine, monkeypatch):
    machine(0)
    monkeypatch.setenv("XPU_OUTER", "9")
    assert "no Acme GPU is visible with XPU_OUTER='9'" in refusal(inventory.visible, "xpu")


def test_the_inventory_and_a_lease(machine):
    machine(2)
    assert devices.get("xpu", ranks=2).arch == "xe3"
    assert "name more GPUs in XPU_SELECTOR" in refusal(devices.get, "xpu", ranks=3)
    gpus = inventory.visible("xpu")
    assert [gpu.device for gpu in gpus] == ["xpu", "xpu"]
    assert "torch 2.13.0+xpu is not a CUDA build" in refusal(inventory.visible, "cuda")
    assert (occupancy.memory_in_use(gpus[1]), occupancy.users_of(gpus[1])) == (4097, [(1, 4096)])
    lease = leases.acquire(gpus, 2, 0, lambda line: None)
    try:
        assert lease.environment() == {"XPU_SELECTOR": "0:1"}
    finally:
        lease.release()


def test_the_probe_asks_it_in_the_child(monkeypatch):
    properties = SimpleNamespace(name="Acme One", architecture="xe3", total_memory=1 << 30, uuid="7", pci_bus_id=3)
    properties.pci_domain_id = properties.pci_device_id = 0
    module = SimpleNamespace(
        init=lambda: None,
        device_count=lambda: 2,
        get_device_properties=lambda index: properties,
        can_device_access_peer=lambda one, other: True,
    )
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(__version__="2.13", version=SimpleNamespace(sycl="1"), xpu=module)
    )
    facts = probe.facts()
    assert (facts["sycl"], facts["cuda"], facts["hip"], facts["xpu_driver"]) == ("1", None, None, False)
    assert facts["gpus"][1] == {
        "index": 1, "name": "Acme One", "arch": "xe3", "memory": 1 << 30, "uuid": "GPU-7", "bus_id": "0000:03:00.0",
        "peers": [0], "device": "xpu",
    }  # fmt: skip


def test_a_rank_uses_the_module_of_torch_that_it_names(monkeypatch):
    done = []

    def synchronize():
        raise RuntimeError("SYCL error: lost\nmore")

    module = SimpleNamespace(device_count=lambda: 2, set_device=done.append, synchronize=synchronize)
    monkeypatch.setattr(torch, "xpu", module)
    monkeypatch.setattr(launches, "install", lambda: None)
    device = devices.known("xpu")
    device.activate(1)
    assert done == [1] and device.torch_device == torch.device("xpu", 1)
    with pytest.raises(KernelFault, match="SYCL error: lost"):
        device.synchronize()
    assert not device.healthy()


def test_its_code_is_read(tmp_path):
    path = tmp_path / "kernel.xeisa"
    path.write_text("the listing")
    code = launches.GpuCode("0" * 64, "kernel", {"kernel.xeisa": str(path), "kernel.zebin": "nowhere"})
    assert (code.listing, code.sass, code.usage) == ("the listing", None, "REG:7")
    assert code.without_sass == "the xeisa runs as it is listed"


def test_needs():
    any_gpu, this, other = Needs(device="gpu"), Needs(device="xpu"), Needs(device="cuda")
    assert any_gpu.missing(1, "xpu") is None and this.missing(1, "xpu") is None
    assert other.missing(1, "xpu") == "needs the device cuda; this run is on xpu"
    assert this.missing(1, "emulated") == "needs the device xpu; this run is emulated"
    marker = SimpleNamespace(args=(), kwargs={"device": "xpu"})
    assert of_item(SimpleNamespace(nodeid="x", iter_markers=lambda name: [marker])) == this
    marker.kwargs = {"device": "tpu"}
    assert refusal(of_item, SimpleNamespace(nodeid="x", iter_markers=lambda name: [marker])).endswith(
        "xpu, gpu, asynchronous gpu"
    )


def test_options_and_their_help():
    texts = {}

    class Group:
        options = ()

        def addoption(self, name, **choices):
            texts[name] = choices.get("help", "")

    pytest_addoption(SimpleNamespace(getgroup=lambda name: Group(), addini=lambda *_, **__: None))
    assert "xpu" in texts["--device"] and "xe3" in texts["--arch"]
    nothing = dict.fromkeys(("arch", "mode", "ranks", "seed", "evidence", "replay", "deadline"))
    options = Options.checked(device="xpu", level="gate", implementation_name="iris_under_test", **nothing)
    assert (options.device, options.arch) == ("xpu", "xe3") and uses_gpus("xpu")


def test_its_telemetry_is_chosen(xpu):
    class Config:
        stash = pytest.Stash()
        pluginmanager = SimpleNamespace(register=lambda session, name: None)

    assert telemetry.session(Config, "xpu")._library == xpu.telemetry
    Config.stash = pytest.Stash()
    assert telemetry.session(Config, "emulated") is None


def test_the_doctor_has_a_row_for_it(machine, monkeypatch):
    machine(1)
    probed = {
        "torch": {"version": "2.13.0+xpu", "cuda": None, "hip": None, "sycl": "2026.1"},
        "triton": {"version": "3.9.0", "backends": ["amd", "acme"]},
    }
    monkeypatch.setattr(doctor, "_probe", lambda: probed)
    findings = doctor.examine()
    rows = {row.name: row for row in findings.devices}
    assert rows["xpu"].ok and not rows["cuda"].ok
    assert "no NVIDIA backend" in rows["cuda"].reason
    assert [gpu["device"] for gpu in findings.gpus] == ["xpu"]
    assert any(check.name == "telemetry" and check.value == "xpu-smi is installed" for check in findings.checks)
    assert doctor._torch_build(findings.torch) == "2.13.0+xpu, SYCL 2026.1 build"
    probed["triton"]["backends"] = ["amd"]
    assert "no Acme backend" in {row.name: row for row in doctor.examine().devices}["xpu"].reason


def test_how_it_ends_a_process_is_recognised():
    crash = RankCrash({0: "signal 6 (SIGABRT)"}, {0: "noise\nACME ABORT at 0x7\nmore"}, {}, None)
    assert outcome.of_failure(crash).fault == "ACME ABORT at 0x7"


def test_the_evidence_of_a_run_on_it_is_written_and_read(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", [samples.run(device="xpu", arch="xe3"), *samples.green()[1:]])
    assert [run.device for run in read(path).runs] == ["xpu"]


def test_the_evidence_records_its_packages_and_variables():
    assert "xpu-tools" in capture_environment()["packages"]
    assert installed_version("triton")
    assert relevant_variables({"XPU_QUEUES": "many", "XPU_OTHER": "many"}) == {
        "XPU_OTHER": "<set>",
        "XPU_QUEUES": "many",
    }


def test_what_its_driver_leaves_in_shared_memory_is_removed(tmp_path, monkeypatch):
    for name in ("acme-77-1", "acme-78-1"):
        (tmp_path / name).touch()
    monkeypatch.setattr(keeper, "_SHARED_MEMORY", str(tmp_path))
    keeper.remove_shared_memory("no such run", {77})
    assert [path.name for path in tmp_path.iterdir()] == ["acme-78-1"]


def test_it_is_judged_together_because_its_memory_cannot_be_mapped():
    assert preflight.check_request("xpu", None, "2", "ci", "iris_under_test", judge=None).judge == ONE_PROCESS
    with pytest.raises(UsageError, match="--judge apart: the harness cannot map memory of device xpu"):
        preflight.check_request("xpu", None, "2", "ci", "iris_under_test", judge=APART)
    assert devices.gpu_kind("xpu").memory_calls() is None


@pytest.mark.parametrize("device", ["cuda", "rocm", "emulated"])
def test_the_other_kinds_are_judged_apart_by_default(device):
    assert preflight.check_request(device, None, "2", "ci", "iris_under_test", judge=None).judge == APART


def test_ranks_on_it_are_ranks_on_gpus():
    """They may wait asleep for their device, so an idle rank need not be waiting for another rank."""
    assert generation._serves_gpus(devices.known("xpu").backend) and generation._serves_gpus("cpu:gloo,xpu:gloo")
    assert not any(map(generation._serves_gpus, ("gloo", "cpu:gloo", "None")))


def test_the_oracle_computes_on_it_and_waits_for_its_stream(monkeypatch):
    waited = []
    stream = SimpleNamespace(synchronize=lambda: waited.append(True))
    module = SimpleNamespace(current_device=lambda: 1, is_initialized=lambda: True, current_stream=lambda: stream)
    monkeypatch.setattr(torch, "xpu", module)
    monkeypatch.setattr(dist, "get_backend_config", lambda: devices.known("xpu").backend)
    assert reference._device() == torch.device("xpu", 1) and waited == []
    monkeypatch.setattr(dist, "get_backend_config", lambda: devices.known("xpu", ranks_per_gpu=2).backend)
    assert reference._device() == torch.device("cpu") and waited == [True]
