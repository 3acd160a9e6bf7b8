"""The protocol for small messages gives the results of the default one, on the first call and on later ones.

Other requirements draw the protocol too, where the library has it. This one is about it alone, so that a library
without it is reported as such: its requirement is unsupported.
"""

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES, LOW_LATENCY_MEMBERS, names
from fixtures.requirement import requirement


def cases(ranks, op):
    op = COLLECTIVES[op]
    plain = op.case(dtype="fp32", m=5, n=70, root=ranks - 1, calls=2, reuse=True)
    # The protocol is for few members: a larger world has its default results.
    return op.also_fast(plain, ranks) if ranks <= LOW_LATENCY_MEMBERS else [plain]


@requirement(
    "CCL-PROTOCOL-001",
    cases=cases,
    ranks=2,
    op=names(lambda op: any(variant.low_latency for variant in op.variants)),
)
def test_protocol(check, case):
    check(run, case)
