"""The host side on two ranks: heap, tensors, messages, groups. Needs gloo, but no device and no emulator."""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import os
import pathlib

import numpy as np
import pytest
import torch
import torch.distributed as dist
from triton.runtime import driver

import iris_under_test
from iris_under_test.ccl import Config, utils
from iris_under_test.host.distributed import extract_group_info
from tests.iris.ranks import run_checks

HEAP = 2**22


def context_tensor_layout(ctx, rank, num_ranks):
    context = ctx.get_device_context()
    assert context.dtype == torch.int64
    assert context.shape == (2 + num_ranks + 17,)
    assert context[:2].tolist() == [rank, num_ranks]
    assert torch.equal(context[2 : 2 + num_ranks], ctx.get_heap_bases())
    assert not context[2 + num_ranks :].any()
    assert ctx.get_device_context() is context
    ctx.zeros(1)
    assert torch.equal(context[2 : 2 + num_ranks], ctx.get_heap_bases())


def queries(ctx, rank, num_ranks):
    assert (ctx.get_rank(), ctx.get_num_ranks()) == (ctx.cur_rank, ctx.num_ranks) == (rank, num_ranks)
    assert str(ctx.get_device()) == ctx.device
    assert ctx.zeros(1).device == ctx.get_device()
    assert (ctx.heap_size, ctx.comm, ctx.gpu_id) == (HEAP, None, rank)
    assert ctx.get_device_id() == ctx.gpu_id
    assert ctx.get_heap_bases() is ctx.get_heap_bases() is ctx.heap_bases


def heap_bases_differ_everywhere(ctx, rank, num_ranks):
    tables = [torch.empty_like(ctx.heap_bases) for _ in range(num_ranks)]
    dist.all_gather(tables, ctx.heap_bases)
    bases = torch.cat(tables).tolist()
    assert len(set(bases)) == num_ranks * num_ranks
    assert all(base % 4096 == 0 for base in bases)
    assert all(base >> 32 != (base + HEAP - 1) >> 32 for base in bases), "a multiple of 4 GiB lies inside each heap"
    assert len({base % 2**32 for base in ctx.heap_bases.tolist()}) == num_ranks, "a difference also has a lower half"
    ordered = sorted(ctx.heap_bases.tolist())
    assert all(high - low > 2**32 for low, high in itertools.pairwise(ordered))


def driver_knows_every_segment(ctx, rank, num_ranks):
    bases = ctx.heap_bases.tolist()
    expected = {bases[owner]: (HEAP, None if owner == rank else owner) for owner in range(num_ranks)}
    # Outside the heap there are only the flags of barriers, and the slots of collectives.
    assert expected.items() <= driver.active.registered.items()
    assert len(driver.active.registered) == 3 * num_ranks


def peers_see_each_other(ctx, rank, num_ranks):
    tensor = ctx.arange(100, dtype=torch.int32)
    tensor += 1000 * rank
    ctx.barrier()
    offset = tensor.data_ptr() - ctx.heap_bases[rank].item()
    for owner, base in enumerate(ctx.heap_bases.tolist()):
        seen = (ctypes.c_int32 * 100).from_address(base + offset)
        assert list(seen) == [1000 * owner + index for index in range(100)]


def allocations_are_aligned_and_symmetric(ctx, rank, num_ranks):
    base = ctx.heap_bases[rank].item()
    for count in (0, 1, 3, 1000):
        tensor = ctx.empty(count, dtype=torch.int8)
        assert ctx.is_symmetric(tensor)
        if count:
            assert (tensor.data_ptr() - base) % 1024 == 0
    assert not ctx.is_symmetric(torch.zeros(1))
    assert ctx.is_symmetric(torch.zeros(0))
    assert ctx.heap.allocate(5, torch.float64).shape == (5,)
    assert ctx.heap.allocator.get_base_address() == base


def allocation_orders_earlier_writes(ctx, rank, num_ranks):
    """Every rank sees what a rank wrote before it allocated; the new memory is already filled."""
    tensor = ctx.zeros(1, dtype=torch.int64)
    offset = tensor.data_ptr() - ctx.heap_bases[rank].item()
    next_rank = ctx.heap_bases[(rank + 1) % num_ranks].item()
    for round_number in range(1, 200):
        tensor.fill_(round_number)
        fresh = ctx.ones(1, dtype=torch.int64)
        seen = ctypes.c_int64.from_address(next_rank + offset).value
        assert seen >= round_number
        ahead = fresh.data_ptr() - ctx.heap_bases[rank].item()
        assert ctypes.c_int64.from_address(next_rank + ahead).value == 1


def bad_sizes_raise_on_every_rank(ctx, rank, num_ranks):
    before = ctx.heap.allocator.heap_offset
    with pytest.raises(ValueError, match=r"got \(-1,\)" if rank == 1 else r"ranks \[1\]"):
        ctx.zeros(-1 if rank == 1 else 5)
    with pytest.raises(ValueError, match="-1 elements" if rank == 1 else r"ranks \[1\]"):
        ctx.heap.allocate(-1 if rank == 1 else 5, torch.int8)
    with pytest.raises(ValueError, match=r"got \(-2, -2\)"):
        ctx.zeros(-2, -2)
    with pytest.raises(RuntimeError, match=r"rank 1: .*20 bytes"):
        ctx.zeros(5 if rank == 1 else 4, dtype=torch.int32)
    for too_many in (HEAP + 1, 2**62):
        with pytest.raises(MemoryError, match="Heap out of memory"):
            ctx.zeros(too_many, dtype=torch.int8)
    with pytest.raises(ValueError, match="alignment 3"):
        ctx.heap.allocate(1, torch.int32, alignment=3)
    assert ctx.heap.allocator.heap_offset == before


def bad_heap_sizes_raise_on_every_rank(ctx, rank, num_ranks):
    for bad in (0, -1, 2.5, "1G", None, True, 2**62, 2**70):
        with pytest.raises(ValueError, match=str(bad)):
            iris_under_test.iris(bad)
    with pytest.raises(ValueError, match="4096"):
        iris_under_test.iris(4096 * (rank + 1))
    with pytest.raises(ValueError, match="4096" if rank else "-7"):
        iris_under_test.iris(4096 if rank else -7)


def broadcast_types(ctx, rank, num_ranks):
    def send(value, src=0):
        return ctx.broadcast(value if rank == src else None, src)

    for number in (3, 2.5, 0.1):
        got = send(number)
        assert isinstance(got, np.ndarray)
        assert got.shape == ()
        assert got == number
    for array in (torch.arange(4), np.arange(4), [0, 1, 2, 3], (0, 1, 2, 3)):
        got = send(array, src=1)
        assert isinstance(got, np.ndarray)
        assert got.tolist() == [0, 1, 2, 3]
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        got = send(torch.tensor([1.5, -2.0]).to(dtype))
        assert (got.dtype, got.tolist()) == (np.float32, [1.5, -2.0])
    assert send(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    for value in (True, "text", {"key": [1, 2]}, ["a", 1], [[1, 2], [3]]):
        got = send(value)
        assert type(got) is type(value)
        assert got == value
    with pytest.raises(ValueError, match="None"):
        ctx.broadcast(None, src=0)
    with pytest.raises(ValueError, match="got 2"):
        ctx.broadcast(1, src=num_ranks)
    with pytest.raises(ValueError, match="got -1" if rank else r"on ranks \[1\]"):
        ctx.broadcast(1, src=-1 if rank else 0)
    with pytest.raises(ValueError, match="got '0'" if rank else r"on ranks \[1\]"):
        ctx.broadcast(1, src="0" if rank else 0)
    with pytest.raises(ValueError, match=r"same on every rank, got {0: 0, 1: 1}"):
        ctx.broadcast(1, src=rank)
    with pytest.raises(TypeError, match="function"):
        ctx.broadcast((lambda: 1) if rank == 0 else 3)
    for unsent in (torch.empty(2, device="meta"), torch.eye(2).to_sparse()):
        with pytest.raises(TypeError, match="broadcast of a Tensor"):
            send(unsent, src=1)


def log_lines_carry_the_rank(ctx, rank, num_ranks):
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    iris_under_test.set_logger_level(iris_under_test.DEBUG)
    iris_under_test.logger.addHandler(handler)
    try:
        for write in (ctx.debug, ctx.info, ctx.warning, ctx.error):
            write("100% done")
        iris_under_test.set_logger_level(iris_under_test.ERROR)
        ctx.warning("hidden")
    finally:
        iris_under_test.logger.removeHandler(handler)
        iris_under_test.set_logger_level(iris_under_test.INFO)
    assert [record.levelname for record in records] == ["DEBUG", "INFO", "WARNING", "ERROR"]
    assert {record.getMessage() for record in records} == {"100% done"}
    assert {(record.iris_rank, record.iris_num_ranks) for record in records} == {(rank, num_ranks)}
    assert {pathlib.Path(record.pathname).name for record in records} == {"test_host.py"}


def group_information(ctx, rank, num_ranks):
    assert utils.extract_group_info(None, ctx) == (rank, rank, num_ranks, 0, 1)
    alone = [dist.new_group([member]) for member in range(num_ranks)]
    assert utils.extract_group_info(alone[rank], ctx) == (0, rank, 1, rank, 1)
    everyone = dist.new_group(list(range(num_ranks)))
    assert extract_group_info(everyone, rank, num_ranks) == (rank, rank, num_ranks, 0, 1)
    with pytest.raises(RuntimeError, match=f"rank {rank} is not part"):
        extract_group_info(alone[1 - rank], rank, num_ranks)
    ctx.barrier(group=everyone)


class LostStream:
    """Stands for a stream of a device that fails while it is waited for."""

    def synchronize(self):
        raise OSError("the device is lost")


def a_failing_device_ends_the_barrier_of_all(ctx, rank, num_ranks):
    def wait(stream):
        if stream is not None:
            stream.synchronize()

    ctx._platform.synchronize, original = wait, ctx._platform.synchronize
    try:
        for group in (None, dist.new_group(list(range(num_ranks)))):
            kind, says = (OSError, "is lost") if rank == 1 else (RuntimeError, r"failed on ranks \[1\]")
            with pytest.raises(kind, match=says):
                ctx.barrier(LostStream() if rank == 1 else None, group)
            ctx.barrier(group=group)
    finally:
        ctx._platform.synchronize = original
    first = dist.new_group([0])
    if rank:
        with pytest.raises(RuntimeError, match="rank 1 is not part of the group"):
            ctx.barrier(group=first)
    else:
        ctx.barrier(group=first)


def all_gather_refuses_bad_arguments(ctx, rank, num_ranks):
    source = ctx.zeros(4, 8)
    target = ctx.zeros(4 * num_ranks, 8)
    gather = ctx.ccl.all_gather
    with pytest.raises(ValueError, match=r"input \(4, 8\) and output \(4, 8\) do not fit"):
        gather(ctx.zeros(4, 8), source)
    with pytest.raises(ValueError, match="float16"):
        gather(ctx.zeros(4 * num_ranks, 8, dtype=torch.float16), source)
    with pytest.raises(ValueError, match="symmetric heap"):
        gather(torch.zeros(4 * num_ranks, 8), source)
    with pytest.raises(ValueError, match="2-D"):
        gather(target.view(-1), source.view(-1))
    with pytest.raises(ValueError, match="persistent"):
        gather(target, source, config=Config(use_gluon=True, all_gather_variant="partitioned"))
    with pytest.raises(ValueError, match="comm_sms 63"):
        gather(target, source, config=Config(comm_sms=63, all_gather_variant="partitioned"))
    for tile in ((1, 64), (3, 128), (8, 16)):
        with pytest.raises(ValueError, match="multiple of 256"):
            gather(target, source, config=Config(use_gluon=True, block_size_m=tile[0], block_size_n=tile[1]))
    with pytest.raises(ValueError, match="powers of two"):
        gather(target, source, config=Config(use_gluon=True, block_size_m=12, block_size_n=64))


def closing_leaves_nothing(ctx, rank, num_ranks):
    def mapped():
        lines = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return sum("iris-heap" in line for line in lines)

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    maps, files, known = mapped(), descriptors(), dict(driver.active.registered)
    second = iris_under_test.iris(2**20)
    kept = second.ones(3)
    assert mapped() == maps + 3 * num_ranks
    assert not set(second.heap_bases.tolist()) & set(ctx.heap_bases.tolist())
    ctx.barrier()
    second.close()
    second.close()
    assert driver.active.registered == known
    assert mapped() == maps + 1, "this rank's heap stays with its tensor"
    assert kept.tolist() == [1, 1, 1], "a tensor outlives the instance"
    del second, kept
    assert (mapped(), descriptors()) == (maps, files)
    for _ in range(50):
        again = iris_under_test.iris(2**20)
        again.zeros(1)
        ctx.barrier()
        del again
    gc.collect()
    assert (mapped(), descriptors()) == (maps, files)


def allocation_is_cheap(ctx, rank, num_ranks):
    """No file system, no mapping: one exchange of three numbers."""
    calls = []
    original = dist.gather
    dist.gather = lambda *arguments, **options: (calls.append(1), original(*arguments, **options))[1]
    try:
        ctx.zeros(10)
    finally:
        dist.gather = original
    assert len(calls) == 1


CHECKS = [
    context_tensor_layout, queries, heap_bases_differ_everywhere, driver_knows_every_segment, peers_see_each_other,
    allocations_are_aligned_and_symmetric, allocation_orders_earlier_writes, bad_sizes_raise_on_every_rank,
    bad_heap_sizes_raise_on_every_rank, broadcast_types, log_lines_carry_the_rank, group_information,
    a_failing_device_ends_the_barrier_of_all, all_gather_refuses_bad_arguments, closing_leaves_nothing,
    allocation_is_cheap,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=HEAP, emulated=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_two_ranks(failures, name):
    assert failures[name] == "", failures[name]
