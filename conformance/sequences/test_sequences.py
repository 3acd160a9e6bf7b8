"""Sequences of calls on whole instances, compared with a model after each step.

SEQUENCE-RMA-001         allocations, frees, puts, gets and atomic adds, with barriers of the world and of groups
SEQUENCE-COLLECTIVES-001 collectives in any order of ops, variants, sizes, element types and groups
SEQUENCE-INSTANCES-001   all of these on up to three instances, which are made and closed in between

A rule is one class in ``rules``.
"""

from conformance.sequences import rules
from conformance.sequences.world import run
from fixtures.requirement import requirement


def drawn(chosen):
    """Return the ``cases`` of a requirement whose sequences have those rules."""

    def cases(ranks):
        from conformance.sequences.strategies import sequences

        return sequences(ranks, chosen)

    return cases


@requirement("SEQUENCE-RMA-001", cases=drawn(rules.MEMORY))
def test_memory(check, case):
    check(run, case)


@requirement("SEQUENCE-COLLECTIVES-001", cases=drawn(rules.COLLECTIVES))
def test_collectives(check, case):
    check(run, case)


@requirement("SEQUENCE-INSTANCES-001", cases=drawn(rules.ALL))
def test_instances(check, case):
    check(run, case)
