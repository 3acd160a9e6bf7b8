"""The all-to-all of a mixture of experts: each rank sends each of its tokens to the rank of the token's expert."""

import torch
import triton
import triton.language as tl

from iris_under_test import iris, put  # noqa: F401 - iris(heap_size=...) makes the instance under test


@triton.jit
def dispatch_kernel(tokens, received, experts, width, n, rank, heap_bases, BLOCK: tl.constexpr):
    token, lane = tl.program_id(0), tl.arange(0, BLOCK)
    expert = tl.load(experts + token)
    source = tokens + token * width + lane
    target = received + (rank * n + token) * width + lane
    put(source, target, rank, expert, heap_bases, mask=lane < width)


def dispatch(ctx, received: torch.Tensor, tokens: torch.Tensor, experts: torch.Tensor) -> None:
    """Write row i of ``tokens`` to row ``rank * n + i`` of ``received`` of rank ``experts[i]``.

    ``received`` and ``tokens`` are in the symmetric heap; ``experts`` are int32 on the device.
    """
    n, width = tokens.shape
    block = triton.next_power_of_2(width)
    # One wavefront: each of its 64 lanes sends four neighbouring elements of 256, in one access of 16 bytes.
    dispatch_kernel[(n,)](
        tokens, received, experts, width, n, ctx.get_rank(), ctx.get_heap_bases(), BLOCK=block, num_warps=1
    )
