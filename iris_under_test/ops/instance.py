"""``ctx.ops``: the fused ops bound to an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_under_test.host.binding import bound

from .all_gather_matmul import all_gather_matmul, all_gather_matmul_preamble
from .matmul_all_gather import matmul_all_gather, matmul_all_gather_preamble
from .matmul_all_reduce import matmul_all_reduce, matmul_all_reduce_preamble
from .matmul_reduce_scatter import matmul_reduce_scatter, matmul_reduce_scatter_preamble

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["InstanceOps"]


_BIAS_BEHIND_THE_MATRICES = ("output_tensor", "A", "B", "bias", "async_op", "config", "workspace")


class InstanceOps:
    """The functions of ``ops`` without their instance argument; ``bias`` follows the matrices in all of them."""

    def __init__(self, instance: Iris) -> None:
        self._instance = instance

    matmul_all_reduce = bound(matmul_all_reduce, _BIAS_BEHIND_THE_MATRICES)
    all_gather_matmul = bound(all_gather_matmul)
    matmul_all_gather = bound(matmul_all_gather)
    matmul_reduce_scatter = bound(matmul_reduce_scatter, _BIAS_BEHIND_THE_MATRICES)

    matmul_all_reduce_preamble = bound(matmul_all_reduce_preamble)
    all_gather_matmul_preamble = bound(all_gather_matmul_preamble)
    matmul_all_gather_preamble = bound(matmul_all_gather_preamble)
    matmul_reduce_scatter_preamble = bound(matmul_reduce_scatter_preamble)
