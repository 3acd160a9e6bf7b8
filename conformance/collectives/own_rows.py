"""Calls whose input is the member's own rows of the output, or whose output is the member's own rows of the input."""

from __future__ import annotations

from dataclasses import replace

import torch

from conformance.collectives.calls import Call, config, expect, invoke, perform, prepare_further
from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import COLLECTIVES
from fixtures.findings import Findings
from fixtures.worker import Env


def check_own_rows(env: Env, case: CollectiveCase, findings: Findings) -> None:
    """Make a valid call with own rows, and one with another member's rows, which is refused. Does nothing for an op
    whose input and output have the same number of rows.

    The group is reversed: the place of a member in it is not its rank. ``case``: a case that ``prepare`` has prepared.
    """
    op = COLLECTIVES[case.op]
    (rows_in, _), (rows_out, _) = op.shapes(1, 1, 2)
    if rows_in == rows_out:
        return
    inputs, outputs = op.shapes(case.m, case.n, env.world_size)
    turned = replace(case, group="reversed")
    [call] = prepare_further(env, turned, case)
    party, gathers = call.party, rows_in < rows_out
    both = call.input is not None and call.output is not None
    region, shape = (call.target, outputs) if gathers else (call.source, inputs)
    # What other members access has one offset on all members, so they all use the rows of the root.
    place = party.members.index(party.root) if op.root else party.place

    def at(memory: torch.Tensor, offset: int = 0) -> torch.Tensor:
        start = (place + offset) % party.size * case.m
        return memory.view(shape)[start : start + case.m]

    def moved(offset: int = 0) -> Call:
        part = at(env.image.tensor(region), offset)
        return replace(call, input=part) if gathers else replace(call, output=part)

    if gathers:
        assert call.given is not None  # sanity check: every member of such an op has an input
        at(env.image.tensor(region)).copy_(call.given)
    env.settle()
    if party.size > 1:
        other, settings = moved(1), config(env, turned, party.size)
        findings.raises(
            f"another member's rows, in the group {party.members}",
            ValueError if both else RuntimeError,
            lambda: invoke(env, turned, other, settings),
        )
        env.settle()
    results = perform(env, turned, [moved()])
    env.settle()
    if env.fault is None and call.wanted is not None:
        findings.same(f"output of a call with own rows, in the group {party.members}", results[0], call.wanted)
    expect(env, turned, call if gathers else replace(call, wanted=None))
    own = call.given if gathers else call.wanted
    if own is not None and not (gathers and both):
        at(env.image.expected(region)).copy_(own)
