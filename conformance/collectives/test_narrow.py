"""Reductions of elements of 1 and 2 bytes, in every variant. These pairs of type and operation are part of every run.

A boolean is a byte, but its sum is true or false: SUM is BOR, PRODUCT is BAND. The largest uint8 is -1 as an int8.
Sums and products of 16-bit floats are computed in float32 and rounded once, which shows from three members on.
"""

from dataclasses import replace

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES, names, one_of_each_kind, published
from fixtures import judged
from fixtures.requirement import requirement
from harness.cases import REDUCE_OPS

BYTES = ("bool", "uint8")
PAIRS = (("bf16", "sum"), ("fp16", "product"), ("bool", "sum"), ("uint8", "max"))
"""Element types and reductions with which every variant is tested."""


def cases(ranks, op):
    op = COLLECTIVES[op]
    first = op.case(dtype="bf16", m=5, n=70, root=ranks - 1)
    variants = [replace(first, variant=one.name) for one in op.variants if one.same_bits] + op.also_fast(first, ranks)
    listed = [replace(one, dtype=dtype, reduce=reduce) for one in variants for dtype, reduce in PAIRS]
    if not judged.extended():
        return list(dict.fromkeys(published(case) for case in listed if (case.dtype, case.reduce) == PAIRS[0]))
    if op.name in one_of_each_kind():  # the kernels of the others are the same
        others = [(dtype, reduce) for dtype in BYTES for reduce in REDUCE_OPS if (dtype, reduce) not in PAIRS]
        listed += [replace(first, dtype=dtype, reduce=reduce) for dtype, reduce in others]
    return list(dict.fromkeys(listed))


@requirement("CCL-NARROW-001", cases=cases, ranks=2, op=names(lambda op: op.reduces))
def test_narrow_types(check, case):
    check(run, case)
