"""Tensor creation on two ranks: torch's results, on the heap; all ranks report mistakes. No device and no emulator."""

from __future__ import annotations

import inspect

import pytest
import torch

from iris_under_test.host import tensor_creation
from iris_under_test.host.tensor_creation import is_valid_device
from tests.iris.ranks import run_checks


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
    for dtype in (torch.int64, torch.int32, torch.float16, torch.float64):
        for arguments in ((0, 7, 2), (7, 0, -2), (-0.5, 3.7), (0.9, 4.1, 1.7), (3.9, -2.2, -1.1), (0, 5, 2.5)):
            wanted = torch.arange(*arguments, dtype=dtype)
            assert torch.equal(ctx.arange(*arguments, dtype=dtype), wanted), (arguments, dtype)
    halves = torch.arange(0, 5, 0.5, dtype=torch.int32)
    assert torch.equal(ctx.arange(0, 5, 0.5, dtype=torch.int32), halves)
    assert len(ctx.arange(2**53, 2**53 + 3)) == 3
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
    if rank == 0:  # with out, the mistake concerns no other rank
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


CHECKS = [
    creation_values, gradients_outlive_what_else_is_written, spaced_values, random_values, size_forms,
    one_rank_s_mistake_is_told_to_all, methods_have_the_functions_signatures, memory_formats_follow_torch,
    out_arguments, bad_arguments,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=2**22, emulated=False)


@pytest.mark.slow
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
