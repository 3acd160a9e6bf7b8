"""The protocol for small messages gives the results of the default one, on the first call and on later ones.

There are fewer tiles than members, as many, and more: a member may have no tile, or one more than another. In one case
the tensors are not small, and hundreds of programs are allowed, each with a large tile.

Other requirements draw the protocol too, where the library has it. This one is about it alone, so that a library
without it is reported as such: its requirement is unsupported.
"""

from dataclasses import replace

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES, LARGE_TILE, LOW_LATENCY_MEMBERS, names
from fixtures.requirement import requirement

COLUMNS = (70, 50, 134)
"""Two tiles of 64 columns, one, and three. One compiled kernel serves all."""

NOT_SMALL = 1 << 20
"""Bytes that a member receives in the case with many programs, and a tile from each member besides."""


def cases(ranks, op):
    op = COLLECTIVES[op]
    plain = op.case(dtype="fp32", m=5, n=70, root=ranks - 1, calls=2, reuse=True)
    shapes = [replace(plain, n=columns) for columns in COLUMNS]
    # The protocol is for few members: a larger world has its default results.
    if ranks > LOW_LATENCY_MEMBERS:
        return shapes
    if op.name == "all_to_all":
        # The smallest tile that Gluon kernels take: a word for each lane. Its words have elements of two rows each.
        shapes.append(replace(plain, dtype="fp16", gluon=True, block_m=128 * plain.warps, block_n=1))
    if op.name == "all_reduce":  # with a kernel of CCL-NARROW-001
        large = replace(plain, **LARGE_TILE, dtype="uint8", reduce="max", calls=1, in_place=True, comm_sms=256)
        shapes.append(replace(large, m=1, n=(NOT_SMALL // ranks + large.block_m * large.block_n) | 1))
    return [case for shape in shapes for case in op.also_fast(shape, ranks)]


@requirement(
    "CCL-PROTOCOL-001",
    cases=cases,
    ranks=2,
    op=names(lambda op: any(variant.low_latency for variant in op.variants)),
)
def test_protocol(check, case):
    check(run, case)
