"""barrier(group): no member returns before all members have called, and each member's earlier writes are then visible
to the other members.
"""

import torch

from conformance.collectives.calls import party_of
from conformance.collectives.cases import CollectiveCase
from conformance.rma.words import read_word
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles.heap import starts

TURNS = 3


def run(env, case):
    findings, party = Findings(env.rank), party_of(env, case)
    env.image.reset()
    marks = [
        env.image.claim(f"mark {turn}", place, 1, torch.int32) for turn, place in enumerate(starts(4096, [4] * TURNS))
    ]
    for mark in marks:
        env.image.fill(mark, torch.zeros(1, dtype=torch.int32))
    env.settle()
    if party.members:
        with env.acting():
            for turn, mark in enumerate(marks):
                env.late(party.members[turn % party.size], case.skew_ms)
                env.image.fill(mark, torch.full((1,), turn + 1, dtype=torch.int32))
                env.iris.ccl.barrier(group=party.handle)
                seen = [read_word(env, rank, mark.start) for rank in party.members]
                findings.equal(f"marks read after barrier {turn}", seen, [turn + 1] * party.size)
    env.settle()
    return findings.first or env.image.difference()


def cases(ranks):
    groups = ("world", "halves", "reversed", "uneven") if ranks > 1 else ("world",)
    return [CollectiveCase(op="barrier", group=group, skew_ms=15) for group in groups]


@requirement("CCL-BARRIER-001", cases=cases)
def test_barrier(check, case):
    check(run, case)
