"""Cases with members held back: ``CCL-HELD-001`` does so at the start of a call, ``CCL-STEPS-001`` inside it."""

from __future__ import annotations

from dataclasses import replace

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import COLLECTIVES, published
from fixtures import judged


def held_cases(ranks: int, op: str, calls: int) -> list[CollectiveCase]:
    """Return a case of ``calls`` calls on the same tensors for each variant of one collective.

    The calls are asynchronous: with others, the members exchange their arguments on the host before any kernel begins.
    """
    described = COLLECTIVES[op]
    plain = described.case(dtype="fp32", m=5, n=70, root=ranks - 1, calls=calls, reuse=True, async_op=True)
    if not judged.extended():
        return [published(plain)]
    variants = [replace(plain, variant=variant.name) for variant in described.variants]
    return [*variants, *described.also_fast(plain, ranks)]
