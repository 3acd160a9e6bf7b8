"""Fused matrix products and collectives: ``ctx.ops.matmul_all_reduce(...)`` or ``ops.matmul_all_reduce(ctx, ...)``.

What holds for every op. All ranks of the world take part. Calls are ordered by the stream, as NCCL's are: when a call's
kernel has ended on a rank, the op is complete there; inputs may then be changed, and outputs read, by whatever is
enqueued behind it, and the next call needs nothing in between. ``async_op=False`` lets the ranks agree on the host
before they launch, so that what one passes wrongly is an error on all, and waits for the stream. ``async_op=True`` does
neither; the workspace that an op returns has ``wait``, ``synchronize`` and ``is_completed`` of the call. It can be
captured in a graph once its workspace is prepared: by the op's ``*_preamble``, or by a call before. Without a workspace
argument a call uses one of the instance's, made by the first such call and kept.

On each rank the calls, and other collectives of the world, must be ordered by one stream or by events.
"""

from .all_gather_matmul import all_gather_matmul, all_gather_matmul_preamble
from .config import FusedConfig
from .matmul_all_gather import matmul_all_gather, matmul_all_gather_preamble
from .matmul_all_reduce import matmul_all_reduce, matmul_all_reduce_preamble
from .matmul_reduce_scatter import matmul_reduce_scatter, matmul_reduce_scatter_preamble
from .operands import FusedShapeError
from .workspace import FusedWorkspace

__all__ = [
    "FusedConfig",
    "FusedShapeError",
    "FusedWorkspace",
    "all_gather_matmul",
    "all_gather_matmul_preamble",
    "matmul_all_gather",
    "matmul_all_gather_preamble",
    "matmul_all_reduce",
    "matmul_all_reduce_preamble",
    "matmul_reduce_scatter",
    "matmul_reduce_scatter_preamble",
]
