"""Fabric drivers: peers import memory by a handle of 64 bytes. Without a fabric every call is refused with an error."""

import torch
import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.rma.words import is_peers, read_address
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.errors import KernelFault


def run(env, case):
    (size,) = case.arguments
    findings = Findings(env.rank)
    base, fabric = module_of(env, "drivers.base"), module_of(env, "drivers.fabric")
    driver = fabric.get_fabric_driver()
    # Only the platform's driver knows whether its GPUs have a fabric; the test assumes neither.
    findings.raises("allocating before initialize()", base.DriverError, lambda: driver.allocate_exportable(size))
    try:
        driver.initialize(env.iris.gpu_id)
        supported = True
    except base.DriverNotSupported:
        supported = False
    on_ranks = [None] * env.world_size
    dist.all_gather_object(on_ranks, supported)
    findings.true(f"a fabric on all ranks or none: {on_ranks}", len(set(on_ranks)) == 1)
    findings.true("the emulated device has a fabric", supported or env.device.name != "emulated")
    if not supported:
        findings.raises("allocating without a fabric", base.DriverError, lambda: driver.allocate_exportable(size))
    if all(on_ranks):
        _share(env, findings, base, fabric, driver, size)
    env.settle()
    return findings.first


def _share(env, findings, base, fabric, driver, size):
    own = driver.allocate_exportable(size)
    findings.true(f"{own.size} bytes for {size}", own.size >= size)
    tensor = env.under_test.module.tensor_from_ptr(own.va, own.size, torch.int32, device=env.iris.device)
    tensor.fill_(500 + env.rank)
    env.device.synchronize()
    every = [None] * env.world_size
    handle = driver.export_handle(own)
    dist.all_gather_object(every, (fabric.tensor_to_handle(fabric.handle_to_tensor(handle)), own.size))
    findings.equal("a handle converted to a tensor and back", every[env.rank][0], handle)
    peers = [rank for rank in range(env.world_size) if rank != env.rank]
    mappings = [driver.import_and_map(peer, *every[peer]) for peer in peers]
    for peer in peers:
        handle, size_there = every[peer]
        findings.raises(
            f"importing more than rank {peer}'s memory",
            base.DriverError,
            lambda peer=peer, handle=handle, size=2 * size_there: driver.import_and_map(peer, handle, size),
        )
    for mapping in mappings:
        last = mapping.remote_va + mapping.size - 4
        findings.equal(
            f"last word of rank {mapping.peer_rank}'s memory", read_address(env, last), 500 + mapping.peer_rank
        )
        if env.device.name == "emulated":
            _owner(env, findings, mapping.peer_rank, last)
    env.settle()
    for mapping in mappings:
        driver.cleanup_import(mapping)
        findings.raises(
            "a second cleanup_import()", base.DriverError, lambda mapping=mapping: driver.cleanup_import(mapping)
        )
    driver.cleanup_local(own)
    findings.raises("a second cleanup_local()", base.DriverError, lambda: driver.cleanup_local(own))
    findings.raises("an allocation of nothing", ValueError, lambda: driver.allocate_exportable(0))
    findings.raises("a handle of 63 bytes", ValueError, lambda: driver.import_and_map(0, bytes(63), size))


def _owner(env, findings, peer, last):
    """Check that memory, whose last word is at ``last``, is registered with the emulated device as ``peer``'s."""
    findings.true(f"rank {peer}'s memory is registered as a peer's", is_peers(env, last))
    findings.raises(
        f"reading the word after rank {peer}'s memory",
        KernelFault,
        lambda: read_address(env, last + 4),
        says=f" of rank {peer}",
    )


@requirement("FABRIC-SHARE-001", cases=lambda ranks: [HostCase("fabric", (size,)) for size in (1, 100_000)])
def test_fabric(check, case):
    check(run, case)


def run_values(env, case):
    """Check the hierarchy of errors, the records, and the conversion between handles and tensors."""
    findings = Findings(env.rank)
    base, fabric = module_of(env, "drivers.base"), module_of(env, "drivers.fabric")
    findings.true("DriverNotSupported is a DriverError", issubclass(base.DriverNotSupported, base.DriverError))
    findings.true("CudaFabricError is a DriverError", issubclass(base.CudaFabricError, base.DriverError))
    findings.true(
        "CudaFabricNotSupported is a CudaFabricError", issubclass(base.CudaFabricNotSupported, base.CudaFabricError)
    )
    findings.equal("LocalAllocation", base.LocalAllocation(va=1, size=2, handle=3).size, 2)
    mapping = base.PeerMapping(peer_rank=1, transport="any", remote_va=3, size=4)
    findings.equal("PeerMapping", (mapping.peer_rank, mapping.remote_va), (1, 3))
    findings.raises("creating the abstract BaseFabricDriver", TypeError, base.BaseFabricDriver)
    nvidia = module_of(env, "drivers.fabric.nvidia").NvidiaFabricDriver
    findings.equal(
        "the driver is NVIDIA's only on CUDA", type(fabric.get_fabric_driver()) is nvidia, env.device.name == "cuda"
    )
    findings.raises(
        "allocating with NVIDIA's driver before initialize()",
        base.CudaFabricError,
        lambda: nvidia().allocate_exportable(1),
    )
    if env.device.name != "cuda":
        findings.raises(
            "initializing NVIDIA's driver without its GPU", base.CudaFabricNotSupported, lambda: nvidia().initialize(0)
        )
    handle = bytes(range(fabric.HANDLE_BYTES))
    tensor = fabric.handle_to_tensor(handle)
    findings.equal("a handle's tensor", (str(tensor.dtype), tensor.tolist()), ("torch.uint8", list(handle)))
    findings.equal("a tensor's handle", fabric.tensor_to_handle(tensor), handle)
    findings.raises("a handle of 63 bytes", ValueError, lambda: fabric.handle_to_tensor(handle[1:]))
    findings.raises("a tensor of int8", ValueError, lambda: fabric.tensor_to_handle(tensor.to(torch.int8)))
    return findings.first


@requirement("FABRIC-VALUES-001", cases=lambda ranks: [HostCase("values")])
def test_values(check, case):
    check(run_values, case)
