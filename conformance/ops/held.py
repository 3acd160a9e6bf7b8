"""Cases with ranks held back: ``FUSED-HELD-001`` does so at the start of a call, ``FUSED-STEPS-001`` inside it."""

from __future__ import annotations

from dataclasses import replace

from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS


def held_cases(op: str, calls: int) -> list[FusedCase]:
    """Return a case of ``calls`` calls for each variant of a fused product, with the kernels of FUSED-EDGES-001."""
    from conformance.ops.strategies import edges

    first = {case.variant: case for case in reversed(edges(op))}
    return [replace(first[one], calls=calls, async_op=True, skewed=-1, skew_ms=0) for one in PRODUCTS[op].variants]
