"""Fused matrix products and collectives: ``ctx.ops.matmul_all_reduce(...)`` or ``ops.matmul_all_reduce(ctx, ...)``.

Rules for all of them. All ranks of the world take part. Calls are ordered by the stream, as NCCL's are: when a call's
kernel has ended on a rank, the op is complete there. Work enqueued afterwards may change inputs and read outputs, and
the next call needs no synchronisation in between. ``async_op=False`` compares the arguments of the ranks on the host
before the launch, so that a wrong argument of one rank raises on all, and waits for the stream. ``async_op=True`` does
neither; the workspace that the op returns has ``wait``, ``synchronize`` and ``is_completed`` of the call. Such a call
can be captured in a graph once its workspace is prepared: by the op's ``*_preamble``, or by an earlier call. A call
without a workspace argument uses one of the instance's, which the first such call allocates.

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
