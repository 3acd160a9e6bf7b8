"""Reductions of elements of 1 and 2 bytes. These pairs of type and operation are part of every run.

Every variant has the pairs that show the type in which it accumulates and compares; the others are computed by one.

A boolean is a byte, but its sum is true or false: SUM is BOR, PRODUCT is BAND. The largest uint8 is -1 as an int8.
Sums and products of 16-bit floats are computed in float32 and rounded once, which shows from three members on.
"""

import functools
from dataclasses import replace

from conformance.collectives.calls import run
from conformance.collectives.operations import BYTE_TILES, COLLECTIVES, names, published
from fixtures import judged
from fixtures.requirement import requirement
from harness.cases import REDUCE_OPS

PAIRS = (("bf16", "sum"), ("bool", "sum"), ("uint8", "max"))
"""Element types and reductions with which every variant is tested."""

OTHERS = tuple(("uint8", reduce) for reduce in REDUCE_OPS if reduce != "max")
"""Those with which one op is tested, besides products of fp16."""


def cases(ranks, op):
    op = COLLECTIVES[op]
    first = op.case(dtype="bf16", m=5, n=70, root=ranks - 1)
    variants = [replace(first, variant=one.name) for one in op.variants if one.same_bits] + op.also_fast(first, ranks)
    listed = [replace(one, dtype=dtype, reduce=reduce) for one in variants for dtype, reduce in PAIRS]
    listed = [replace(one, **_tile(one)) for one in listed]
    if not judged.extended():
        return list(dict.fromkeys(published(case) for case in listed if (case.dtype, case.reduce) == PAIRS[0]))
    return list(dict.fromkeys([*listed, *_others(ranks)[op.name]]))


def _tile(case):
    """Return the fields of the case's tile, if it is another one than that of most cases."""
    return BYTE_TILES.get((case.variant, case.protocol), {}) if case.dtype == "uint8" else {}


@functools.cache
def _others(ranks):
    """Return the other cases by op. Products of fp16 go to the ops that draw several elements with their kernel; those
    of booleans to the first one that does so with int8, the type that the library reads them as: most need no kernel of
    their own."""
    from conformance.collectives import strategies

    ops = names(lambda op: op.reduces)
    listed, seen = {op: [] for op in ops}, {"sum"}  # every variant has the sum
    for op in ops:
        for build in strategies.builds_of(ranks, op, "int8"):
            # A product of booleans is their minimum, and a sum their maximum.
            of_kernel = {"min": ("min", "product"), "sum": (), "product": ()}.get(build.reduce, (build.reduce,))
            for reduce in of_kernel if build.extent != "one" else ():
                if reduce not in seen:
                    seen.add(reduce)
                    listed[op].append(strategies.simplest(ranks, op, "bool", replace(build, reduce=reduce)))
        products = [build for build in strategies.builds_of(ranks, op, "fp16") if build.reduce == "product"]
        listed[op] += [strategies.simplest(ranks, op, "fp16", build) for build in products if build.extent != "one"]
    undrawn = () if any(case.dtype == "fp16" for some in listed.values() for case in some) else (("fp16", "product"),)
    rest = (*OTHERS, *undrawn, *(("bool", reduce) for reduce in REDUCE_OPS if reduce not in seen))
    first = COLLECTIVES[ops[0]].case(m=5, n=70, variant=COLLECTIVES[ops[0]].variants[0].name)
    listed[ops[0]] += [replace(first, dtype=dtype, reduce=reduce) for dtype, reduce in rest]
    return listed


@requirement("CCL-NARROW-001", cases=cases, ranks=2, op=names(lambda op: op.reduces))
def test_narrow_types(check, case):
    check(run, case)
