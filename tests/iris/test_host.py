"""The host side on two ranks: heap, tensors, messages, groups. Needs gloo, but no device and no emulator."""

from __future__ import annotations

import ctypes
import gc
import inspect
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
from iris_under_test.host import tensor_creation
from iris_under_test.host.distributed import extract_group_info
from iris_under_test.host.tensor_creation import is_valid_device
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
    assert all(base % (2 << 20) == 0 for base in bases)
    ordered = sorted(ctx.heap_bases.tolist())
    assert all(high - low > 2**32 for low, high in itertools.pairwise(ordered))


def driver_knows_every_segment(ctx, rank, num_ranks):
    bases = ctx.heap_bases.tolist()
    expected = {bases[owner]: (HEAP, None if owner == rank else owner) for owner in range(num_ranks)}
    # Beside the heap there are only the flags of device_barrier.
    assert expected.items() <= driver.active.registered.items()
    assert len(driver.active.registered) == 2 * num_ranks


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
    """What a rank wrote before it allocates is there for all after it; the new memory is already filled."""
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


def creation_values(ctx, rank, num_ranks):
    for dtype in (torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float64):
        ctx.empty(64, dtype=dtype).fill_(1)
        for ours, theirs in ((ctx.zeros, torch.zeros), (ctx.ones, torch.ones)):
            assert torch.equal(ours(3, 5, dtype=dtype), theirs(3, 5, dtype=dtype))
    assert torch.equal(ctx.full((2, 2), 2.5), torch.full((2, 2), 2.5))
    assert ctx.full((1,), 3).dtype == ctx.full([1], True).dtype == torch.int64
    assert ctx.zeros(2).dtype == ctx.full((1,), 1.0).dtype == torch.get_default_dtype()
    for arguments in ((7,), (2, 9), (0, 10, 3), (9, 2, -2), (0.0, 1.0, 0.25), (0, 1, 0.3)):
        assert torch.equal(ctx.arange(*arguments), torch.arange(*arguments)), arguments
    tensors = (torch.tensor(2), 9, torch.tensor(3)), (torch.tensor(0.5), 3)
    for arguments in tensors:
        assert torch.equal(ctx.arange(*arguments), torch.arange(*arguments)), arguments


def gradients_outlive_what_else_is_written(ctx, rank, num_ranks):
    """Each tensor has its own count of writes, by which autograd sees that what it saved is stale."""
    tensor = ctx.full((3,), 2.0, requires_grad=True)
    squares = (tensor * tensor).sum()
    ctx.zeros(5).add_(1)
    squares.backward()
    assert tensor.grad.tolist() == [4.0] * 3
    cube = (tensor**3).sum()
    with torch.no_grad():
        tensor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        cube.backward()
    out = ctx.empty(4, requires_grad=True)
    assert ctx.arange(4, dtype=torch.float32, out=out) is out
    assert out.requires_grad, "out keeps its flag"
    assert ctx.arange(4.0, out=ctx.empty(4), requires_grad=True).requires_grad


def spaced_values(ctx, rank, num_ranks):
    for arguments in ((0, 1, 5), (3.0, -3.0, 4), (2, 2, 1), (0, 9, 0), (1j, 2, 3), (torch.tensor(1.5), 4, 3)):
        got, wanted = ctx.linspace(*arguments), torch.linspace(*arguments)
        assert (got.dtype, got.tolist()) == (wanted.dtype, wanted.tolist()), arguments
    assert torch.equal(ctx.linspace(0, 10, 3, dtype=torch.int8), torch.linspace(0, 10, 3, dtype=torch.int8))
    for steps in (6, (6,), [6], ((6,),), (2, 3), [[3, 2]]):
        assert ctx.linspace(0, 1, steps).shape == (6,), steps
    out = ctx.empty(4)
    assert ctx.linspace(0, 3, 4, out).data_ptr() == out.data_ptr()
    assert out.tolist() == [0, 1, 2, 3]
    torch.set_default_dtype(torch.float64)
    try:
        assert ctx.linspace(0, 1j, 2).dtype == ctx.full((1,), 1j).dtype == torch.complex128
    finally:
        torch.set_default_dtype(torch.float32)
    assert ctx.full((1,), 1j).dtype == torch.complex64


def random_values(ctx, rank, num_ranks):
    """The numbers that torch draws: from a generator or from the default one, in memory or in ``out``."""

    def ours_and_theirs(name, *arguments, **options):
        torch.manual_seed(5)
        ours = getattr(ctx, name)(*arguments, generator=torch.Generator().manual_seed(7), **options)
        ours_again = getattr(ctx, name)(*arguments, **options)
        torch.manual_seed(5)
        theirs = getattr(torch, name)(*arguments, generator=torch.Generator().manual_seed(7), **options)
        theirs_again = getattr(torch, name)(*arguments, **options)
        assert torch.equal(ours, theirs) and torch.equal(ours_again, theirs_again), (name, arguments, options)
        assert ours.dtype == theirs.dtype

    for dtype in (None, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
        for size in ((3, 7), (0,), ()):
            ours_and_theirs("rand", size, dtype=dtype)
            ours_and_theirs("randn", size, dtype=dtype)
    for dtype in (None, torch.uint8, torch.int16, torch.float32):
        ours_and_theirs("randint", 100, (5, 5), dtype=dtype)
        ours_and_theirs("randint", 3, 10, (17,), dtype=dtype)
    torch.manual_seed(3)
    ours = ctx.uniform((2, 50), -2.0, 3.0), ctx.uniform([4], dtype=torch.float64)
    torch.manual_seed(3)
    assert torch.equal(ours[0], torch.empty(2, 50).uniform_(-2.0, 3.0))
    assert torch.equal(ours[1], torch.empty(4, dtype=torch.float64).uniform_())
    out = ctx.zeros(6)
    torch.manual_seed(3)
    assert ctx.rand(2, 3, out=out, pin_memory=True).data_ptr() == out.data_ptr()
    torch.manual_seed(3)
    assert torch.equal(out.view(2, 3), torch.rand(2, 3))


def size_forms(ctx, rank, num_ranks):
    for form in ((2, 3), ((2, 3),), ([2, 3],), (((2, 3),),), ([[2, 3]],), (torch.Size((2, 3)),)):
        assert ctx.zeros(*form).shape == (2, 3), form
    assert ctx.zeros().shape == ctx.zeros(()).shape == ()
    assert ctx.zeros(0).shape == (0,)
    with pytest.raises(TypeError):
        ctx.full(3, 1)
    with pytest.raises(TypeError):
        ctx.zeros("3")


def memory_formats_follow_torch(ctx, rank, num_ranks):
    last, last_3d = torch.channels_last, torch.channels_last_3d
    assert ctx.empty(2, 3, 4, 5, memory_format=last).is_contiguous(memory_format=last)
    assert ctx.empty(2, 3, 4, 5, 6, memory_format=last_3d).is_contiguous(memory_format=last_3d)
    assert ctx.empty(4, 5, memory_format=last).is_contiguous()
    for like in (torch.ones(2, 3, 4, 5).to(memory_format=last), torch.ones(4, 6).t(), torch.ones(3, 8)[:, ::2]):
        ours = ctx.zeros_like(like)
        theirs = torch.zeros_like(like)
        assert (ours.shape, ours.stride()) == (theirs.shape, theirs.stride())
        assert torch.equal(ours, theirs)
        assert ctx.is_symmetric(ours)
    assert ctx.zeros_like(torch.ones(2, dtype=torch.int8)).dtype == torch.int8
    assert ctx.zeros_like(torch.ones(2), dtype=torch.int8).dtype == torch.int8


def out_arguments(ctx, rank, num_ranks):
    out = ctx.empty(6, dtype=torch.float32)
    result = ctx.ones(2, 3, out=out)
    assert result.data_ptr() == out.data_ptr()
    assert result.shape == (2, 3)
    assert out.tolist() == [1.0] * 6
    assert ctx.arange(6, dtype=torch.float32, out=out) is out
    assert out.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="The output tensor has 6 elements, but 5 are required"):
        ctx.zeros(5, out=out)
    with pytest.raises(RuntimeError, match=r"The output tensor has dtype torch\.float32, but torch\.int8 is required"):
        ctx.zeros(6, out=out, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="The output tensor is not on the symmetric heap"):
        ctx.zeros(6, out=torch.zeros(6))
    with pytest.raises(TypeError, match="out must be a tensor, got 6"):
        ctx.zeros(6, out=6)


def bad_arguments(ctx, rank, num_ranks):
    for device in ("cuda", "cuda:1", "meta"):
        with pytest.raises(RuntimeError, match=device):
            ctx.zeros(1, device=device)
    with pytest.raises(RuntimeError):
        ctx.zeros_like(torch.zeros(1, device="meta"))
    with pytest.raises(ValueError, match="sparse"):
        ctx.zeros(1, layout=torch.sparse_coo)
    with pytest.raises(ValueError, match="step must be non-zero"):
        ctx.arange(0, 5, 0)
    for arguments in ((0,), (5, 2), (2, 5, -1)):
        with pytest.raises(ValueError, match="empty range"):
            ctx.arange(*arguments)
    for arguments in ((), (3,), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match=f"got {len(arguments)} arguments"):
            ctx.randint(*arguments)
    with pytest.raises(RuntimeError, match="from=7 >= to=7"):
        ctx.randint(7, 7, (1,))
    with pytest.raises(RuntimeError, match="from=1 > to=0"):
        ctx.uniform((1,), 1.0, 0.0)
    with pytest.raises(RuntimeError, match="overflow"):
        ctx.full((2,), 300, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="require gradients"):
        ctx.zeros(1, dtype=torch.int8, requires_grad=True)


BAD_ON_ONE_RANK = {
    "device": (RuntimeError, lambda ctx: ctx.zeros(4, device="meta")),
    "layout": (ValueError, lambda ctx: ctx.zeros(4, layout=torch.sparse_coo)),
    "size": (TypeError, lambda ctx: ctx.zeros("4")),
    "option": (TypeError, lambda ctx: ctx.zeros(4, colour="red")),
    "value": (RuntimeError, lambda ctx: ctx.full((4,), 1e300, dtype=torch.float16)),
    "dtype": (RuntimeError, lambda ctx: ctx.rand(4, dtype=torch.int32)),
    "no dtype": (TypeError, lambda ctx: ctx.zeros(4, dtype="float32")),
    "generator": (TypeError, lambda ctx: ctx.rand(4, generator=5)),
    "endpoint": (RuntimeError, lambda ctx: ctx.linspace(0, torch.zeros(2), 4)),
    "range": (RuntimeError, lambda ctx: ctx.arange(float("nan"), 4)),
    "gradient": (RuntimeError, lambda ctx: ctx.zeros(4, dtype=torch.int8, requires_grad=True)),
    "input": (TypeError, lambda ctx: ctx.zeros_like(4)),
}


def one_rank_s_mistake_is_told_to_all(ctx, rank, num_ranks):
    """No rank waits, nothing is allocated, and the ranks stay in step."""
    before = ctx.heap.allocator.heap_offset
    for name, (kind, wrong) in BAD_ON_ONE_RANK.items():
        for culprit in range(num_ranks):
            if rank == culprit:
                with pytest.raises(kind):
                    wrong(ctx)
            else:
                with pytest.raises((ValueError, RuntimeError), match=rf"ranks \[{culprit}\]"):
                    ctx.zeros(4)
            assert ctx.heap.allocator.heap_offset == before, name
    out = ctx.zeros(4)
    if rank == 0:  # with out, the mistake is nobody else's affair
        with pytest.raises(RuntimeError, match="4 elements, but 3 are required"):
            ctx.linspace(0, 1, 3, out)
    ctx.zeros(1)


def methods_have_the_functions_signatures(ctx, rank, num_ranks):
    for name in tensor_creation.__all__:
        if name != "is_valid_device":
            wanted = list(inspect.signature(getattr(tensor_creation, name)).parameters)[2:]
            got = list(inspect.signature(getattr(ctx, name)).parameters)
            assert got == ["device" if word == "requested_device" else word for word in wanted]
            assert getattr(type(ctx), name).__doc__


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
    assert send(torch.ones(2, dtype=torch.bfloat16)).tolist() == [1.0, 1.0]
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
    with pytest.raises(ValueError, match=r"\(8, 8\).*got \(4, 8\)"):
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
    assert mapped() == maps + 2 * num_ranks
    assert not set(second.heap_bases.tolist()) & set(ctx.heap_bases.tolist())
    ctx.barrier()
    second.close()
    second.close()
    assert driver.active.registered == known
    assert mapped() == maps + 1, "the own heap stays with its tensor"
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
    original = dist.all_gather
    dist.all_gather = lambda *arguments, **options: (calls.append(1), original(*arguments, **options))[1]
    try:
        ctx.zeros(10)
    finally:
        dist.all_gather = original
    assert len(calls) == 1


CHECKS = [
    context_tensor_layout, queries, heap_bases_differ_everywhere, driver_knows_every_segment, peers_see_each_other,
    allocations_are_aligned_and_symmetric, allocation_orders_earlier_writes, creation_values,
    gradients_outlive_what_else_is_written, spaced_values, random_values, size_forms, one_rank_s_mistake_is_told_to_all,
    methods_have_the_functions_signatures, memory_formats_follow_torch, out_arguments, bad_arguments,
    bad_sizes_raise_on_every_rank, bad_heap_sizes_raise_on_every_rank, broadcast_types, log_lines_carry_the_rank,
    group_information, a_failing_device_ends_the_barrier_of_all, all_gather_refuses_bad_arguments,
    closing_leaves_nothing, allocation_is_cheap,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=HEAP, emulated=False)


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_two_ranks(failures, name):
    assert failures[name] == "", failures[name]


@pytest.mark.parametrize(
    ("requested", "device", "valid"),
    [
        (None, "cuda:1", True),
        ("cuda:1", "cuda:1", True),
        ("cuda", "cuda:1", True),
        ("cuda:0", "cuda:1", False),
        ("cpu", "cuda:1", False),
        ("mps", "cuda:1", False),
        ("cpu", "cpu", True),
        ("cuda", "cpu", False),
    ],
)
def test_valid_devices(requested, device, valid):
    assert is_valid_device(requested, torch.device(device)) is valid
