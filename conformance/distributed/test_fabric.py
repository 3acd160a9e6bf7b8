"""Fabric drivers: memory that peers import by a handle of 64 bytes; where there is no fabric, a plain refusal."""

import torch
import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase


def run(env, case):
    (size,) = case.arguments
    found = Findings(env.rank)
    base, fabric = module_of(env, "drivers.base"), module_of(env, "drivers.fabric")
    driver = fabric.get_fabric_driver()
    # Whether GPUs have a fabric is for the driver of their platform to say: nothing here assumes it for any of them.
    found.raises("allocating before initialize()", base.DriverError, lambda: driver.allocate_exportable(size))
    try:
        driver.initialize(env.iris.gpu_id)
        here = True
    except base.DriverNotSupported:
        here = False
    everywhere = [None] * env.world_size
    dist.all_gather_object(everywhere, here)
    found.true(f"a fabric on all ranks or none: {everywhere}", len(set(everywhere)) == 1)
    found.true("the emulated device has one", here or env.device.name != "emulated")
    if not here:
        found.raises("allocating without a fabric", base.DriverError, lambda: driver.allocate_exportable(size))
    if all(everywhere):
        _share(env, found, base, fabric, driver, size)
    env.settle()
    return found.first


def _share(env, found, base, fabric, driver, size):
    own = driver.allocate_exportable(size)
    found.true(f"{own.size} bytes for {size}", own.size >= size)
    tensor = env.under_test.module.tensor_from_ptr(own.va, own.size, torch.int32, device=env.iris.device)
    tensor.fill_(500 + env.rank)
    env.device.synchronize()
    every = [None] * env.world_size
    handle = driver.export_handle(own)
    dist.all_gather_object(every, (fabric.tensor_to_handle(fabric.handle_to_tensor(handle)), own.size))
    found.equal("a handle that went through a tensor", every[env.rank][0], handle)
    peers = [rank for rank in range(env.world_size) if rank != env.rank]
    mappings = [driver.import_and_map(peer, *every[peer]) for peer in peers]
    for peer in peers:
        handle, size_there = every[peer]
        found.raises(
            f"more than rank {peer}'s memory",
            base.DriverError,
            lambda peer=peer, handle=handle, size=2 * size_there: driver.import_and_map(peer, handle, size),
        )
    for mapping in mappings:
        last = mapping.remote_va + mapping.size - 4
        found.equal(f"the end of rank {mapping.peer_rank}'s memory", read_address(env, last), 500 + mapping.peer_rank)
    env.settle()
    for mapping in mappings:
        driver.cleanup_import(mapping)
        found.raises("unmapping it again", base.DriverError, lambda mapping=mapping: driver.cleanup_import(mapping))
    driver.cleanup_local(own)
    found.raises("giving it back again", base.DriverError, lambda: driver.cleanup_local(own))
    found.raises("an allocation of nothing", ValueError, lambda: driver.allocate_exportable(0))
    found.raises("a handle of 63 bytes", ValueError, lambda: driver.import_and_map(0, bytes(63), size))


@requirement("FABRIC-SHARE-001", cases=lambda ranks: [HostCase("fabric", (size,)) for size in (1, 100_000)])
def test_fabric(check, case):
    check(run, case)


def run_values(env, case):
    """Errors are a family; handles and tensors convert, and anything else is refused."""
    found = Findings(env.rank)
    base, fabric = module_of(env, "drivers.base"), module_of(env, "drivers.fabric")
    found.true("DriverNotSupported is a DriverError", issubclass(base.DriverNotSupported, base.DriverError))
    found.true("CudaFabricError is a DriverError", issubclass(base.CudaFabricError, base.DriverError))
    found.true("CudaFabricNotSupported is both", issubclass(base.CudaFabricNotSupported, base.CudaFabricError))
    found.equal("LocalAllocation", base.LocalAllocation(va=1, size=2, handle=3).size, 2)
    mapping = base.PeerMapping(peer_rank=1, transport="any", remote_va=3, size=4)
    found.equal("PeerMapping", (mapping.peer_rank, mapping.remote_va), (1, 3))
    found.raises("BaseFabricDriver alone", TypeError, base.BaseFabricDriver)
    nvidia = module_of(env, "drivers.fabric.nvidia").NvidiaFabricDriver
    found.equal("CUDA's driver", type(fabric.get_fabric_driver()) is nvidia, env.device.name == "cuda")
    found.raises("NVIDIA's before initialize()", base.CudaFabricError, lambda: nvidia().allocate_exportable(1))
    if env.device.name != "cuda":
        found.raises("NVIDIA's without its GPU", base.CudaFabricNotSupported, lambda: nvidia().initialize(0))
    handle = bytes(range(fabric.HANDLE_BYTES))
    tensor = fabric.handle_to_tensor(handle)
    found.equal("a handle's tensor", (str(tensor.dtype), tensor.tolist()), ("torch.uint8", list(handle)))
    found.equal("a tensor's handle", fabric.tensor_to_handle(tensor), handle)
    found.raises("a handle of 63 bytes", ValueError, lambda: fabric.handle_to_tensor(handle[1:]))
    found.raises("a tensor of int8", ValueError, lambda: fabric.tensor_to_handle(tensor.to(torch.int8)))
    return found.first


@requirement("FABRIC-VALUES-001", cases=lambda ranks: [HostCase("values")])
def test_values(check, case):
    check(run_values, case)
