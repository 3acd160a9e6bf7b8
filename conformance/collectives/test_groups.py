"""Groups: a call involves the members of its group and no other rank.

001  The members of a group return with their result while a rank outside the group is blocked; with and without
     async_op.
002  Two groups with common ranks can make calls in turn on their own tensors, without synchronization.
003  A group can be destroyed and a new one created with the same ranks.
"""

from dataclasses import replace

import torch
import torch.distributed as dist

from conformance.collectives.calls import Party, config, invoke, judge, prepare
from conformance.collectives.operations import COLLECTIVES
from conformance.rma.words import read_word
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import members_of

MARK = 800 * 1024


def run_alone(env, case):
    """Make the group's calls. Each member sets a mark when its calls have returned; the other ranks poll the marks,
    which the race detector cannot see. A member that waits for another rank's call keeps both waiting until the case's
    deadline, which excludes compilation: the case hangs."""
    findings = Findings(env.rank)
    calls = prepare(env, case)
    mark = env.image.claim("mark", MARK, 1, torch.int32)
    env.image.fill(mark, torch.zeros(1, dtype=torch.int32))
    env.settle()
    outputs = []
    with env.acting():
        for call in calls:
            handle = invoke(env, case, call, config(env, case, call.party.size))
            if case.async_op:
                handle.synchronize()
            outputs.append(None if call.output is None else call.output.clone())
        env.image.fill(mark, torch.ones(1, dtype=torch.int32))
        if not calls:
            members = members_of(case.group, 0, env.world_size)
            env.image.fill(mark, torch.zeros(1, dtype=torch.int32))
            env.poll(lambda: all(read_word(env, rank, MARK) == 1 for rank in members))
    env.settle()
    return judge(env, case, calls, outputs, findings)


def alone_cases(ranks, op):
    """Return calls of the group "uneven" with a kernel that the requirement of the op has too; with that of
    CCL-GROUP-002 if it has none for this group without a protocol for small sizes."""
    from conformance.collectives.strategies import SMALL, builds_of, simplest

    rows = [
        (dtype, build)
        for dtype in ("fp32", "int32", "fp16", "int8", "fp64")
        for build in builds_of(ranks, op, dtype)
        if build.groups == ("uneven",) and not build.kernel.protocol
    ]
    if rows:
        case = simplest(ranks, op, *min(rows, key=lambda row: row[1].extent in SMALL))
    else:
        case = COLLECTIVES[op].case(dtype="fp32", m=5, n=70, group="uneven")
    return [replace(case, async_op=late) for late in (False, True)]


@requirement("CCL-GROUP-001", cases=alone_cases, ranks=3, race=False, op=COLLECTIVES)
def test_only_members_are_needed(check, case):
    check(run_alone, case)


def run_overlapping(env, case):
    """Make calls in two groups: all ranks but the last, and all but the first. Ranks in both groups make all calls, in
    the same order."""
    everyone = tuple(range(env.world_size))
    groups = (everyone[:-1], everyone[1:][::-1])
    handles = [env.group(group, groups) for group in groups]
    findings = Findings(env.rank)
    # The tensors are those of calls in the world; each call uses the first rows, as many as its group needs.
    calls = prepare(env, replace(case, group="world"))
    made = []
    for k, call in enumerate(calls):
        if env.rank in groups[k % 2]:
            # Older releases of torch sort the ranks of a group.
            members = tuple(dist.get_process_group_ranks(handles[k % 2]))
            party = Party(members, handles[k % 2], members[case.root % len(members)], members.index(env.rank))
            rows = len(members) * case.m
            made.append((k, replace(call, party=party, output=call.output[:rows])))
    env.settle()
    held = []
    with env.acting():
        settings = config(env, case, len(groups[0]))
        for k, call in made:
            env.late((case.skewed + k) % env.world_size, case.skew_ms)
            invoke(env, case, call, settings)
            held.append(call.output.clone())
    env.settle()
    if env.fault is None:
        for (k, call), output in zip(made, held, strict=True):
            blocks = calls[k].wanted.view(env.world_size, case.m, case.n)
            wanted = torch.cat([blocks[rank] for rank in call.party.members])
            findings.same(f"output of call {k}, of group {call.party.members}", output, wanted)
    return findings.first


def overlapping_cases(ranks):
    return [
        COLLECTIVES["all_gather"].case(dtype="fp32", m=5, n=70, calls=8, async_op=True, skewed=late, skew_ms=15)
        for late in range(2)
    ]


@requirement("CCL-GROUP-002", cases=overlapping_cases, ranks=3)
def test_overlapping_groups(check, case):
    check(run_overlapping, case)


def run_again(env, case):
    """Make calls, each in a new process group of the same ranks that is destroyed after the call."""
    findings = Findings(env.rank)
    calls = prepare(env, case)
    groups = sorted({members_of(case.group, rank, env.world_size) for rank in range(env.world_size)} - {()})
    env.settle()
    outputs = []
    for k in range(case.calls):
        handles = env.new_groups([sorted(members) for members in groups])
        if calls:
            # Not by the members' order, which older releases of torch change.
            [handle] = [handle for handle, members in zip(handles, groups, strict=True) if env.rank in members]
            order = tuple(dist.get_process_group_ranks(handle))
            party = replace(calls[k].party, members=order, handle=handle, place=order.index(env.rank))
            call = replace(calls[k], party=party)
            with env.acting():
                work = invoke(env, case, call, config(env, case, party.size))
                if case.async_op:
                    work.synchronize()
            outputs.append(call.output.clone())
        env.settle()
        if calls:
            env.destroy_group(handle)
    return judge(env, case, calls, outputs, findings)


def again_cases(ranks):
    """Return a case in weak memory, then one under the race detector, in a group that is new to the library: its
    first call maps and clears memory of the group. With async_op, nothing on the host orders that before the others'
    stores, unless the library does."""
    op = COLLECTIVES["all_reduce"]
    case = op.case(dtype="fp32", m=5, n=70, group="uneven", calls=3)
    return [case, *op.also_fast(replace(case, group="stride", async_op=True), len(members_of("stride", 0, ranks)))]


@requirement(
    "CCL-GROUP-003",
    cases=again_cases,
    ranks=3,
    one_process_on_gpus="no judge apart has run it on a GPU yet",
)
def test_groups_made_again(check, case):
    check(run_again, case)
