"""The host side has the names, parameters and fields of the published Iris API (docs/spec), read from one table.

Each line of ``SIGNATURES`` is a callable with its parameters and defaults as published. Further parameters may follow
if they are keyword-only or have defaults, so that every published call works.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
from dataclasses import fields

import numpy as np
import pytest
import torch

import iris_under_test
from harness import emulator
from harness.errors import KernelFault
from iris_under_test import hip
from iris_under_test.drivers.base import DriverError
from iris_under_test.host.distributed.topology import FabricInfo
from tests.iris.test_hip import Address, add_one_kernel

CREATION = "out=None, dtype=None, layout=strided, device=None, requires_grad=False"

SIGNATURES = f"""
iris: heap_size=1073741824, allocator_type='torch'
Iris: heap_size=1073741824, allocator_type='torch'
Iris.get_rank:
Iris.get_num_ranks:
Iris.get_device:
Iris.get_device_id:
Iris.get_cu_count:
Iris.get_heap_bases:
Iris.get_device_context:
Iris.is_symmetric: tensor
Iris.as_symmetric: external_tensor
Iris.barrier: stream=None, group=None
Iris.device_barrier: group=None
Iris.broadcast: value, src=0
Iris.debug: message
Iris.info: message
Iris.warning: message
Iris.error: message
set_logger_level: level
Iris.zeros: *size, {CREATION}
Iris.ones: *size, {CREATION}
Iris.full: size, fill_value, *, {CREATION}
Iris.empty: *size, {CREATION}, pin_memory=False, memory_format=contiguous_format
Iris.zeros_like: input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=preserve_format
Iris.arange: start=0, end=None, step=1, *, {CREATION}
Iris.linspace: start, end, steps, {CREATION}
Iris.rand: *size, generator=None, {CREATION}, pin_memory=False
Iris.randn: *size, generator=None, {CREATION}, pin_memory=False
Iris.randint: *bounds_and_size, generator=None, {CREATION}
Iris.uniform: size, low=0.0, high=1.0, dtype=float32
tensor_creation.is_valid_device: requested, iris_device
host.memory.symmetric_heap.SymmetricHeap: heap_size, device_id, cur_rank, num_ranks, allocator_type='torch'
host.memory.symmetric_heap.SymmetricHeap.allocate: num_elements, dtype, alignment=1024
host.memory.symmetric_heap.SymmetricHeap.get_device:
host.memory.symmetric_heap.SymmetricHeap.get_heap_bases:
host.memory.symmetric_heap.SymmetricHeap.is_symmetric: tensor
host.memory.symmetric_heap.SymmetricHeap.on_symmetric_heap: tensor
host.memory.symmetric_heap.SymmetricHeap.as_symmetric: external_tensor
host.memory.symmetric_heap.SymmetricHeap.refresh_peer_access:
host.memory.allocators.BaseAllocator.get_base_address:
host.memory.allocators.BaseAllocator.allocate: num_elements, dtype, alignment=1024
host.memory.allocators.BaseAllocator.get_device:
host.memory.allocators.BaseAllocator.owns_tensor: tensor
host.memory.allocators.BaseAllocator.get_minimum_allocation_size:
host.memory.allocators.vmem_allocator.VMemAllocator: heap_size, device_id, rank, world_size, va_multiplier=1.0
CUDAArrayInterface: ptr, size_bytes, dtype=uint8, device='cuda', shape=None
tensor_from_ptr: ptr, size_bytes, dtype=float32, device='cuda', shape=None
host.distributed.fd_passing.send_fd: sock, fd, payload=b'\\x00'
host.distributed.fd_passing.recv_fd: sock, payload_size=1
host.distributed.fd_passing.managed_fd: fd
host.distributed.fd_passing.setup_fd_infrastructure: rank, world
host.distributed.helpers.distributed_allgather: data
host.distributed.helpers.distributed_allgather_multidim: data
host.distributed.helpers.distributed_broadcast_scalar: value=None, root=0
host.distributed.helpers.distributed_broadcast_tensor: value=None, root=0
host.distributed.helpers.distributed_barrier: group=None
host.distributed.helpers.extract_group_info: group, rank, num_ranks
hip.set_device: device_id
hip.get_device_id:
hip.count_devices:
hip.get_cu_count: device=None
hip.get_arch_string: device_id=None
hip.get_wall_clock_rate: device_id=None
hip.get_num_xcc: device_id=None
hip.get_rocm_version:
hip.get_ipc_handle: ptr, rank=None
hip.open_ipc_handle: handle, rank=None
hip.hip_malloc: size
hip.hip_free: ptr
hip.malloc_fine_grained: size
hip.get_address_range: ptr
hip.export_dmabuf_handle: ptr, size
hip.import_dmabuf_handle: fd, size
hip.mem_set_access: ptr, size, desc=None
host.distributed.topology.TopologyDiscovery: iris_ctx=None
host.distributed.topology.TopologyDiscovery.discover:
host.distributed.topology.TopologyDiscovery.get_communication_groups:
host.distributed.topology.TopologyDiscovery.get_heap_distribution_plan:
host.distributed.topology.FabricInfo: cluster_uuid='', clique_id=0
drivers.base.BaseFabricDriver.initialize: ordinal
drivers.base.BaseFabricDriver.allocate_exportable: size
drivers.base.BaseFabricDriver.export_handle: allocation
drivers.base.BaseFabricDriver.import_and_map: peer, handle_bytes, size
drivers.base.BaseFabricDriver.cleanup_import: mapping
drivers.base.BaseFabricDriver.cleanup_local: allocation
host.tracing.Tracing.enable: max_events=1000000
host.tracing.Tracing.reset:
host.tracing.Tracing.export: filename='trace.json', merge=False
host.tracing.kernel_artifacts.iris_launch: kernel, grid, *args, algorithm, rank, dtype=None, **kwargs
host.platform.utils.get_device_id_for_rank: rank
host.platform.utils.is_simulation_env:
bench.power_of_two: start, end
bench.linear_range: start, end, step
bench.axis: name, values
bench.main: argv=None
bench.State.set_bytes: count
bench.State.set_flops: count
bench.State.add_counter: name, value
bench.State.set_warmup: count
bench.State.set_repeat: count
bench.State.exec: fn, *, preamble_fn=None
bench.State.skip: reason
"""

FIELDS = {
    "host.distributed.topology.FabricInfo": ("cluster_uuid", "clique_id"),
    "drivers.base.LocalAllocation": ("va", "size", "handle"),
    "drivers.base.PeerMapping": ("peer_rank", "transport", "remote_va", "size"),
}

MEMBERS = {
    "host.distributed.topology.FabricInfo": ("is_valid", "to_dict", "from_dict"),
    "host.distributed.topology.GPUInfo": ("to_dict", "from_dict"),
    "host.distributed.topology.NodeInfo": ("to_dict", "from_dict"),
    "host.distributed.topology.TopologyMap": (
        "to_dict", "from_dict", "get_node_peers", "get_fabric_domain_peers", "get_rdma_peers", "get_interconnect_level",
        "get_ranks_for_node", "get_ranks_for_fabric_domain", "summary",
    ),
    "host.distributed.topology.TopologyDiscovery": ("topology",),
    "host.memory.allocators.BaseAllocator": ("heap_offset",),
    "bench.State": ("get", "__getitem__"),
}  # fmt: skip

VALUES = {
    "host.distributed.topology.InterconnectLevel": {"INTRA_NODE": 0, "INTRA_RACK_FABRIC": 1, "INTER_NODE_RDMA": 2},
    "host.distributed.topology.IntraNodeLinkType": {
        "SELF": -1, "NVLINK": 0, "NVSWITCH": 1, "PCIE_SWITCH": 2, "PCIE_HOST_BRIDGE": 3, "PCIE_NUMA": 4,
        "PCIE_SYSTEM": 5, "UNKNOWN": 99,
    },
}  # fmt: skip

SAME = {
    "host.platform.utils.do_bench": "do_bench",
    "bench.do_bench": "do_bench",
    "host.platform.hip": "hip",
    "host.tensor_creation": "tensor_creation",
    "host.tracing.events.TraceEvent": "TraceEvent",
    "drivers.fabric.DriverError": "drivers.base.DriverError",
    "drivers.fabric.DriverNotSupported": "drivers.base.DriverNotSupported",
    "drivers.fabric.nvidia.CudaFabricError": "drivers.base.CudaFabricError",
    "drivers.fabric.nvidia.CudaFabricNotSupported": "drivers.base.CudaFabricNotSupported",
    "drivers.fabric.nvidia.handle_to_tensor": "drivers.fabric.handle_to_tensor",
    "drivers.fabric.nvidia.tensor_to_handle": "drivers.fabric.tensor_to_handle",
    "host.memory.SymmetricHeap": "host.memory.symmetric_heap.SymmetricHeap",
    "host.memory.VMemAllocator": "host.memory.allocators.vmem_allocator.VMemAllocator",
    "host.memory.TorchAllocator": "host.memory.allocators.torch_allocator.TorchAllocator",
    "host.memory.BaseAllocator": "host.memory.allocators.base_allocator.BaseAllocator",
}
"""Name -> the other name of the same object."""


def resolved(name):
    """Return the object of a dotted name below the package, importing modules on the way."""
    current = iris_under_test
    for part in name.split("."):
        try:
            current = getattr(current, part)
        except AttributeError:
            current = importlib.import_module(f"{current.__name__}.{part}")
    return current


def parameters_of(function):
    """Return the parameters of a function, method or class without ``self`` and annotations."""
    signature = inspect.signature(function)
    return [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in {"self", "cls"}]


def parsed(text):
    """Return the parameters of one line of ``SIGNATURES``."""
    names = {name: getattr(torch, name) for name in ("strided", "float32", "uint8")}
    names |= {name: getattr(torch, name) for name in ("contiguous_format", "preserve_format")}
    namespace: dict = {}
    exec(f"def published({text}): ...", names, namespace)
    return parameters_of(namespace["published"])


def difference(published, present):
    """Return what would break a published call, or an empty text."""
    rest = {parameter.name: parameter for parameter in present}
    order = [parameter.name for parameter in present if parameter.name in {p.name for p in published}]
    if order != [parameter.name for parameter in published]:
        return f"has the parameters {list(rest)}, expected {[parameter.name for parameter in published]}"
    for parameter in published:
        own = rest.pop(parameter.name)
        if (own.kind, own.default) != (parameter.kind, parameter.default):
            return f"has {own}, expected {parameter}"
    positional = [p for p in present if p.kind is p.POSITIONAL_OR_KEYWORD]
    if positional[: sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in published)] != [
        p for p in positional if p.name not in rest
    ]:
        return "has another parameter before a published one"
    needed = [name for name, own in rest.items() if own.default is own.empty and own.kind is not own.VAR_KEYWORD]
    return f"also requires {needed}" if needed else ""


LINES = [line.partition(":")[::2] for line in SIGNATURES.strip().splitlines()]


@pytest.mark.parametrize(("name", "published"), LINES, ids=[name for name, _ in LINES])
def test_signatures(name, published):
    assert difference(parsed(published), parameters_of(resolved(name))) == "", name


def test_do_bench_has_its_parameters():
    """Its default functions have no published text."""
    names = ["fn", "barrier_fn", "preamble_fn", "n_warmup", "n_repeat", "quantiles", "return_mode"]
    present = {p.name: p.default for p in parameters_of(iris_under_test.do_bench)}
    assert list(present) == names
    assert [present[name] for name in names[3:]] == [25, 100, None, "mean"]


@pytest.mark.parametrize(
    ("present", "fault"),
    [
        ("b, a=1", "has the parameters"),
        ("a, b=1", "expected"),
        ("c, a, b=0", "before"),
        ("a, b=0, *, c", "also requires"),
        ("a", "has the parameters"),
        ("a, b=0, c=3", ""),
    ],
)
def test_a_planted_difference_is_reported(present, fault):
    text = difference(parsed("a, b=0"), parsed(present))
    assert (fault in text) if fault else text == ""


@pytest.mark.parametrize("name", FIELDS)
def test_fields_come_first_and_in_order(name):
    published = FIELDS[name]
    assert tuple(field.name for field in fields(resolved(name)))[: len(published)] == published


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name):
    assert [member for member in MEMBERS[name] if not hasattr(resolved(name), member)] == []


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    kind = resolved(name)
    assert issubclass(kind, enum.IntEnum)
    assert {member.name: int(member) for member in kind} == VALUES[name]


@pytest.mark.parametrize("name", SAME)
def test_one_object_under_both_names(name):
    assert resolved(name) is resolved(SAME[name])


@pytest.mark.parametrize(
    ("cluster_uuid", "valid"),
    [("", False), ("0" * 32, False), ("00000000-0000-0000-0000-000000000000", False), ("00a0", True)],
)
def test_fabric_information_is_valid_with_a_cluster(cluster_uuid, valid):
    fabric = FabricInfo(cluster_uuid, 3)
    assert fabric.is_valid is valid
    assert fabric.domain_key == (f"{cluster_uuid}:3" if valid else "")


# The emulated device: descriptors, access rights and handles


@pytest.fixture
def grain():
    emulator.activate("gfx942")
    before = len(os.listdir("/proc/self/fd"))
    try:
        yield hip.get_allocation_granularity()
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        emulator.deactivate()


@pytest.fixture
def mapped(grain):
    """The address of two granules in a range, mapped one by one, without access."""
    start = hip.mem_address_reserve(2 * grain)
    for number in range(2):
        handle = hip.mem_create(grain)
        hip.mem_map(start + number * grain, grain, 0, handle)
        hip.mem_release(handle)
    yield start
    for number in range(2):
        hip.mem_unmap(start + number * grain, grain)
    hip.mem_address_free(start, 2 * grain)


def ints(address, count=4):
    return iris_under_test.tensor_from_ptr(address, 4 * count, torch.int32)


def test_mapped_addresses_are_exported(mapped, grain):
    ints(mapped + grain + 64).copy_(torch.arange(4))
    fd, base, size = hip.export_dmabuf_handle(mapped + grain + 64, 16)
    assert (base, size) == (mapped + grain, grain)
    memory, address = hip.import_dmabuf_handle(fd, size, offset=64)
    os.close(fd)
    assert ints(address).tolist() == [0, 1, 2, 3]
    ints(address).fill_(9)
    assert ints(mapped + grain + 64).tolist() == [9] * 4
    again, base, size = hip.export_dmabuf_handle(address, 16)
    assert (base, size) == (address - 64, grain), "imported memory can be exported too"
    os.close(again)
    hip.destroy_external_memory(memory)


def test_exports_and_imports_that_fail(mapped, grain):
    with pytest.raises(RuntimeError, match="end beyond"):
        hip.export_dmabuf_handle(mapped, grain + 1)
    with pytest.raises(RuntimeError, match="not in memory that hip allocated"):
        hip.export_dmabuf_handle(torch.zeros(4).data_ptr(), 16)
    for offset in (-1, grain):
        with pytest.raises(ValueError, match=f"got {offset}"):
            hip.import_dmabuf_handle(0, grain, offset)


def reaches(address):
    """Return True if a kernel may access the memory."""
    try:
        add_one_kernel[(1,)](Address(address), 4)
    except KernelFault:
        return False
    return True


@pytest.mark.slow
def test_access_descriptors(mapped, grain):
    def accessible():
        return [reaches(mapped), reaches(mapped + grain)]

    desc = hip.hipMemAccessDesc()
    desc.location.type = hip.hipMemLocationTypeDevice
    desc.location.id = 0
    desc.flags = hip.hipMemAccessFlagsProtReadWrite
    assert accessible() == [False, False]
    hip.mem_set_access(mapped, grain, desc)
    assert accessible() == [True, False]
    hip.mem_set_access(mapped, 2 * grain, [desc])
    assert accessible() == [True, True]
    desc.flags = hip.hipMemAccessFlagsProtNone
    hip.mem_set_access(mapped, grain, desc)
    assert accessible() == [False, True]


@pytest.mark.parametrize(
    ("field", "value", "error", "match"),
    [
        ("type", 7, ValueError, "location.type must be .* got 7"),
        ("id", 1, ValueError, r"device must be in \[0, 1\), got 1"),
        ("flags", 2, ValueError, "flags must be one of .* got 2"),
        ("flags", hip.hipMemAccessFlagsProtRead, RuntimeError, "read access only"),
    ],
)
def test_access_descriptors_that_fail(mapped, grain, field, value, error, match):
    desc = hip.hipMemAccessDesc.read_write(0)
    setattr(desc if field == "flags" else desc.location, field, value)
    with pytest.raises(error, match=match):
        hip.mem_set_access(mapped, grain, desc)


def test_handles_take_a_rank_and_any_64_bytes(grain):
    ptr = hip.hip_malloc(64)
    handle = hip.get_ipc_handle(ptr, 3)
    for form in (handle, np.frombuffer(handle, np.uint8), torch.tensor(list(handle), dtype=torch.uint8)):
        with pytest.raises(RuntimeError, match=r"memory of rank 3: .*this very process"):
            hip.open_ipc_handle(form, rank=3)
    hip.hip_free(ptr)
    with pytest.raises(RuntimeError, match="memory of rank 3: "):
        hip.get_ipc_handle(ptr, rank=3)


def test_fabric_errors_are_caught_by_either_name(grain):
    from iris_under_test.drivers import fabric

    with pytest.raises(fabric.DriverError) as caught:
        fabric.get_fabric_driver().allocate_exportable(64)
    assert isinstance(caught.value, DriverError)
