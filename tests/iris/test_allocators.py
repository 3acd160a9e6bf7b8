"""The allocators on two ranks: registered and mapped memory, and failures of one rank alone."""

from __future__ import annotations

import gc
import os
import pathlib
import time
import weakref

import pytest
import torch
import torch.distributed as dist
from triton.runtime import driver

import iris_under_test
from iris_under_test.host.memory import HeapOutOfMemory, VMemAllocator
from iris_under_test.host.platform.cuda.platform import CudaPlatform
from iris_under_test.host.platform.emulated import mappings
from iris_under_test.host.platform.emulated.runtime import EmulatedRuntime
from iris_under_test.host.platform.emulated.vmem import EmulatedVirtualMemory
from iris_under_test.host.platform.gpu import ipc, pool
from iris_under_test.host.platform.gpu.platform import PROVIDERS
from iris_under_test.host.platform.rocm.vmem import RocmVirtualMemory
from tests.iris.ranks import HostOnlyDriver, run_checks

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/memory.md"
HEAP = 1 << 20
GRANULE = EmulatedVirtualMemory.granularity


def vmem(ctx):
    """A further instance, with vmem."""
    return iris_under_test.iris(HEAP, "vmem")


def segments(iris):
    """Return the registered parts of each rank's heap: (offset, size) in order."""
    known = driver.active.registered
    return [
        sorted((start - base, size) for start, (size, _) in known.items() if 0 <= start - base < HEAP)
        for base in iris.heap_bases.tolist()
    ]


def descriptors():
    gc.collect()  # processes and queues of other tests close theirs when they are collected
    return len(os.listdir("/proc/self/fd"))


def mapped():
    return sum("iris-heap" in line for line in pathlib.Path("/proc/self/maps").read_text("utf-8").splitlines())


def the_driver_knows_the_chunks(ctx, rank, num_ranks):
    """Of every rank, and nothing else; chunks that touch are one segment."""
    iris = vmem(ctx)
    assert segments(iris) == [[]] * num_ranks
    first = iris.empty(10, dtype=torch.uint8)
    assert segments(iris) == [[(0, GRANULE)]] * num_ranks
    second, third = iris.empty(GRANULE, dtype=torch.uint8), iris.empty(GRANULE, dtype=torch.uint8)
    assert segments(iris) == [[(0, 3 * GRANULE)]] * num_ranks
    assert iris.heap.allocator.mapped_bytes() == 3 * GRANULE
    iris.free(second)
    assert segments(iris) == [[(0, 3 * GRANULE)]] * num_ranks, "the second lay across two chunks with the others"
    iris.free(third)
    assert segments(iris) == [[(0, GRANULE)]] * num_ranks
    last = iris.empty(HEAP - GRANULE, dtype=torch.uint8)
    assert (last.data_ptr() - first.data_ptr(), iris.heap.allocator.heap_offset) == (1024, HEAP - GRANULE + 1024)
    iris.free(first)
    iris.free(last)
    assert segments(iris) == [[]] * num_ranks
    ctx.barrier()
    iris.close()


def a_hole_between_segments(ctx, rank, num_ranks):
    iris = vmem(ctx)
    tensors = [iris.empty(GRANULE, dtype=torch.uint8) for _ in range(4)]
    iris.free(tensors.pop(1))
    assert segments(iris) == [[(0, GRANULE), (2 * GRANULE, 2 * GRANULE)]] * num_ranks
    tensors[1].fill_(rank + 1)
    iris.barrier()
    for owner, base in enumerate(iris.heap_bases.tolist()):
        seen = mappings.tensor_over(base + 2 * GRANULE, GRANULE, None)
        assert (seen == owner + 1).all()
    ctx.barrier()
    iris.close()


def nothing_is_left(ctx, rank, num_ranks):
    """200 allocations and frees, and 10 instances: no descriptor, mapping or registration more than before."""
    first = mapped()
    iris = vmem(ctx)
    start = descriptors(), mapped(), dict(driver.active.registered)
    for turn in range(200):
        iris.free(iris.empty(1000 * turn, dtype=torch.uint8))
    assert (descriptors(), mapped(), dict(driver.active.registered)) == start
    kept = iris.ones(7)
    ctx.barrier()
    iris.close()
    assert kept.tolist() == [1] * 7
    assert segments(iris) == [[(0, GRANULE)] if owner == rank else [] for owner in range(num_ranks)]
    del kept
    gc.collect()
    assert mapped() == first, "a closed instance keeps nothing, though it is there"
    before = descriptors(), mapped(), dict(driver.active.registered)
    other = iris_under_test.iris(HEAP, "torch")
    other.zeros(5)
    ctx.barrier()
    other.close()
    assert (descriptors(), mapped(), dict(driver.active.registered)) == before
    for _ in range(10):
        again = vmem(ctx)
        again.zeros(GRANULE)
        ctx.barrier()
        del again
    gc.collect()
    assert (descriptors(), mapped(), dict(driver.active.registered)) == before


def one_device_is_full(ctx, rank, num_ranks):
    """The other rank gets the same error at the same call, and the next allocation works."""
    iris = vmem(ctx)
    kept = iris.full((4,), rank)
    memory = iris.heap.allocator._memory
    if rank == 1:
        memory.create = lambda size: (_ for _ in ()).throw(OSError(12, "no memory left"))
    with pytest.raises(HeapOutOfMemory, match="no memory left" if rank == 1 else r"ranks \[1\] are full"):
        iris.empty(3 * GRANULE, dtype=torch.uint8)
    if rank == 1:
        del memory.create
    assert segments(iris) == [[(0, GRANULE)]] * num_ranks
    again = iris.zeros(3 * GRANULE, dtype=torch.uint8)
    assert again.data_ptr() - kept.data_ptr() == 1024 and kept.tolist() == [rank] * 4
    ctx.barrier()
    iris.close()


def one_device_fails(ctx, rank, num_ranks):
    """One rank's device fails while it waits, the other rank raises too; then the ranks are in step."""
    for kind in ("torch", "vmem"):
        iris = iris_under_test.iris(HEAP, kind)
        kept = iris.full((4,), rank)
        if rank == 1:
            iris._platform.synchronize = lambda: (_ for _ in ()).throw(RuntimeError("the device is lost"))
        for act in (lambda: iris.empty(4), lambda: iris.free(kept), lambda: iris.as_symmetric(torch.ones(4))):  # noqa: B023
            with pytest.raises(RuntimeError if rank == 1 else (ValueError, RuntimeError)) as caught:
                act()
            assert ("the device is lost" if rank == 1 else "ranks [1]") in str(caught.value)
        if rank == 1:
            del iris._platform.synchronize
        assert iris.zeros(4).data_ptr() - kept.data_ptr() == 1024
        ctx.barrier()
        iris.close()


def one_rank_cannot_map_a_peer(ctx, rank, num_ranks):
    iris = vmem(ctx)
    memory = iris.heap.allocator._memory
    if rank == 0:
        memory.adopt = lambda descriptor, size: (_ for _ in ()).throw(OSError(24, "no handles left"))
    with pytest.raises(RuntimeError, match="no handles left" if rank == 0 else r"ranks \[0\]"):
        iris.empty(10)
    if rank == 0:
        del memory.adopt
    assert segments(iris) == [[]] * num_ranks
    assert iris.ones(10).tolist() == [1] * 10
    ctx.barrier()
    iris.close()


def one_rank_cannot_pass_a_chunk(ctx, rank, num_ranks):
    """The others learn of it at once, and whose fault it is; afterwards chunks can be passed again."""
    iris = vmem(ctx)
    iris.empty(10)
    memory = iris.heap.allocator._memory
    if rank == 0:
        memory.export = lambda handle: (_ for _ in ()).throw(OSError(24, "no descriptors left"))
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no descriptors left" if rank == 0 else r"failed on ranks \[0\]"):
            iris.empty(2 * GRANULE, dtype=torch.uint8)
    assert time.monotonic() - started < 10
    if rank == 0:
        del memory.export
    assert iris.ones(2 * GRANULE, dtype=torch.uint8).min() == 1
    assert iris.ones(10).tolist() == [1] * 10
    ctx.barrier()
    iris.close()


def providers_of_gpus(ctx, rank, num_ranks):
    """An unknown provider, or different ones: every rank raises before any GPU is queried."""
    for mine, says in (
        ("ipc" if rank == 0 else "no such", "none such" if rank == 0 else "no heap provider 'no such'"),
        (PROVIDERS[rank], "0: 'symmetric_memory', 1: 'ipc'"),
    ):
        platform = CudaPlatform(mine)
        platform.make_current = lambda rank: None
        with pytest.raises(ValueError, match=says):
            platform.map_symmetric_memory(HEAP, rank, num_ranks)


def a_pool_of_a_group(ctx, rank, num_ranks):
    """Its members alone agree that they have it, or that one has not; the other rank is elsewhere meanwhile."""
    group = dist.new_group([1])
    mem_info_of_torch = pool.torch.cuda.mem_get_info
    pool.torch.cuda.mem_get_info = lambda: (HEAP, HEAP)
    try:
        if rank == 1:
            assert pool.allocate(10, lambda: torch.ones(10), group).tolist() == [1] * 10
            with pytest.raises(ValueError, match=f"heap of {HEAP + 1} bytes: the GPU has {HEAP}"):
                pool.allocate(HEAP + 1, lambda: torch.ones(1), group)
        dist.barrier()
        pool.torch.cuda.mem_get_info = lambda: (HEAP, 0 if rank == 0 else HEAP)
        error, says = (ValueError, "the GPU has 0") if rank == 0 else (RuntimeError, r"failed on ranks \[0\]")
        with pytest.raises(error, match=says):
            pool.allocate(HEAP, lambda: torch.ones(1))
    finally:
        pool.torch.cuda.mem_get_info = mem_info_of_torch


def a_handle_for_each_peer(ctx, rank, num_ranks):
    """torch counts one process per handle. Memory of processes of their own stands in for a GPU's."""
    opened, whole = [], torch.UntypedStorage
    sent = iter(range(100 * rank, 100 * rank + 99))
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in (("ipc_collect", None), ("empty_cache", None), ("mem_get_info", (HEAP, HEAP))):
            patch.setattr(torch.cuda, name, lambda stand_in=stand_in: stand_in)
        patch.setattr(whole, "_share_cuda_", lambda storage: (0, next(sent)), raising=False)
        patch.setattr(whole, "_new_shared_cuda", lambda _, handle: opened.append(handle) or whole(16), raising=False)
        memory = ipc.IpcMemory(1 << 12, rank, num_ranks, torch.device("cpu"))
    every = [None] * num_ranks
    dist.all_gather_object(every, opened)
    handles = sorted(handle for theirs in every for handle in theirs)
    assert handles == sorted(100 * owner + k for owner in range(num_ranks) for k in range(num_ranks - 1)), every
    assert len(memory.bases) == num_ranks and memory.bases[rank] == memory.pool.data_ptr()


def providers_that_nobody_chose(ctx, rank, num_ranks):
    """torch's symmetric memory refuses ranks that share a GPU."""
    count = torch.cuda.device_count
    try:
        for gpus, provider in ((2, "symmetric_memory"), (1, "ipc"), (8, "symmetric_memory")):
            torch.cuda.device_count = lambda gpus=gpus: gpus
            assert (CudaPlatform().provider, CudaPlatform("ipc").provider) == (provider, "ipc")
    finally:
        torch.cuda.device_count = count


def a_wider_range(ctx, rank, num_ranks):
    """va_multiplier: addresses for second mappings besides a heap that is full; its errors on every rank."""
    device_id = ctx.gpu_id
    wide = VMemAllocator(GRANULE, device_id, rank, num_ranks, va_multiplier=3.0)
    full = wide.allocate(GRANULE, torch.uint8)
    with pytest.raises(HeapOutOfMemory):
        wide.allocate(1, torch.uint8)
    original = torch.full((100,), rank, dtype=torch.uint8)
    shared = wide.share(original)
    offset = wide.reserve_shared(shared, original)
    kept = weakref.ref(original)
    del original
    assert kept() is not None, "its memory is not used again while it is mapped twice"
    with pytest.raises(HeapOutOfMemory):
        wide.reserve_shared(shared, torch.empty(2 * GRANULE, dtype=torch.uint8))
    assert wide.free_bytes() == 0
    wide.connect()
    shared.drop()
    assert (offset, wide.view(offset, 100, torch.uint8).tolist()) == (GRANULE, [rank] * 100)
    assert wide.owns_tensor(wide.view(offset, 100, torch.uint8)) and wide.owns_tensor(full)
    wide.release(offset)
    assert kept() is None
    wide.close()
    for bad in (0.5, float("nan"), float("inf"), "2"):
        with pytest.raises((ValueError, TypeError)):
            VMemAllocator(GRANULE, device_id, rank, num_ranks, va_multiplier=bad)
    with pytest.raises(RuntimeError if rank == 0 else ValueError):
        VMemAllocator(GRANULE, device_id, rank, num_ranks, va_multiplier=float(1 - rank))


def the_guide_s_program(ctx, rank, num_ranks):
    """The first example of docs/memory.md."""
    text = GUIDE.read_text(encoding="utf-8")
    program = text.split("```python\n")[1].split("```")[0]
    names = {"iris": iris_under_test, "torch": torch, "weights": torch.full((5,), 2.0)}
    exec(compile(program, str(GUIDE), "exec"), names)
    weights, mine = names["weights"], names["mine"]
    weights.fill_(rank + 3)
    assert mine.tolist() == [rank + 3] * 5
    second = names["ctx"].zeros(1024, dtype=torch.float16)
    assert second.data_ptr() == names["tensor"].data_ptr(), "the memory was had again"
    ctx.barrier()
    names["ctx"].close()


CHECKS = [
    the_driver_knows_the_chunks, a_hole_between_segments, nothing_is_left, one_device_is_full,
    one_device_fails, one_rank_cannot_map_a_peer, one_rank_cannot_pass_a_chunk, providers_of_gpus,
    providers_that_nobody_chose, a_pool_of_a_group, a_wider_range,
    the_guide_s_program,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=1 << 16, emulated=False)


@pytest.mark.slow
def test_on_three_ranks():
    assert run_checks([a_handle_for_each_peer], 3, 1 << 16, emulated=False) == {"a_handle_for_each_peer": ""}


@pytest.mark.slow
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_two_ranks(failures, name):
    assert failures[name] == "", failures[name]


class Particular(EmulatedRuntime):
    """ROCm's hipMemSetAccess, with the check that its source has of the sizes of a range's mappings."""

    def __init__(self, host_driver):
        super().__init__(host_driver)
        self.sizes = []

    def mem_map(self, ptr, size, offset, handle):
        super().mem_map(ptr, size, offset, handle)
        self.sizes.append(size)

    def mem_set_access(self, ptr, size, device, flags):
        sums = [sum(self.sizes[: count + 1]) for count in range(len(self.sizes))]
        if size not in sums:
            raise RuntimeError(f"hipMemSetAccess: {size} is none of {sums}")
        super().mem_set_access(ptr, size, device, flags)


def test_without_room_in_shared_memory_nothing_is_shared(monkeypatch):
    memory, tensor = EmulatedVirtualMemory(0, 1, HostOnlyDriver()), torch.ones(5)
    full = RuntimeError("unable to allocate shared memory(shm): No space left on device (28)")
    monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", lambda storage: (_ for _ in ()).throw(full))
    assert memory.share(tensor) is None
    monkeypatch.undo()
    shared = memory.share(tensor)
    assert (shared.size, shared.start) == (GRANULE, 0)
    shared.drop()


@pytest.mark.slow
@pytest.mark.parametrize("exports", [True, False])
def test_rocm_shares_what_peers_can_have(exports):
    """An allocation's DMA-BUF, where its import can be exported in turn; else it is a copy, and nothing stays open."""
    runtime = EmulatedRuntime(HostOnlyDriver())
    memory = RocmVirtualMemory(torch.device("cpu"), runtime)
    size = 2 * memory.granularity
    address = runtime.malloc(size)
    files = descriptors()
    if not exports:
        runtime.mem_export = lambda handle: (_ for _ in ()).throw(RuntimeError("hipErrorInvalidValue"))
    shared = memory.share(mappings.tensor_over(address + 64, 1000, None))
    if exports:
        assert (shared.size, shared.start) == (size, 64)
        shared.drop()
    assert (shared is not None, descriptors()) == (exports, files)
    assert memory.share(mappings.tensor_over(address + size - 64, 100, None)) is None, "it ends in other memory"
    assert descriptors() == files
    runtime.free(address)


@pytest.mark.slow
def test_rocm_by_its_runtime_s_calls():
    """The emulated runtime has the same calls: chunks of one size, a second mapping, descriptors; all is given back."""
    host_driver = HostOnlyDriver()
    memory = RocmVirtualMemory(torch.device("cpu"), Particular(host_driver))
    granule = memory.granularity
    assert memory.largest_chunk == granule >= 2 << 20
    address = memory.reserve(4 * granule, 0)
    files = descriptors()
    for place in (address, address + granule):
        handle = memory.create(granule)
        memory.map(place, granule, handle, 0)
        memory.destroy(handle)
    handle = memory.create(2 * granule)
    descriptor = memory.export(handle)
    again = memory.adopt(descriptor, 2 * granule)
    os.close(descriptor)
    memory.map(address + 2 * granule, 2 * granule, again, 1)  # of another size: granted from the range's start
    mappings.tensor_over(address + 4 * granule - 1, 1, None).fill_(5)
    assert sum(size for size, _ in host_driver.registered.values()) == 4 * granule
    memory.destroy(handle)
    memory.destroy(again)
    for offset, size in ((0, granule), (granule, granule), (2 * granule, 2 * granule)):
        memory.unmap(address + offset, size)
    memory.release(address, 4 * granule)
    assert (host_driver.registered, descriptors()) == ({}, files)
