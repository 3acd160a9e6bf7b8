"""Process groups of every geometry: consecutive, strided, reversed, overlapping, or of one rank, several at once.

Member i of a group is global rank start + i * stride, in the order of the process group. Group operations give
torch.distributed's results on the same group, over repeated calls with changing data, and involve only the members.
"""

import torch
import torch.distributed as dist

from conformance.rma.words import read_word
from conformance.support.cases import HostCase, alike
from conformance.support.instances import release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import payload
from harness.oracles import gathered
from harness.oracles.heap import starts

CALLS, M, N = 3, 5, 24
MARKS = 600 * 1024


def groups_of(kind, ranks):
    """Return the groups of a kind, each in its own order. Every rank is in one group; of overlapping ones, most ranks
    are in two."""
    everyone = tuple(range(ranks))
    half = max(1, ranks // 2)
    return tuple(
        group
        for group in {
            "consecutive": (everyone[:half], everyone[half:]),
            "strided": (everyone[::2], everyone[1::2]),
            "reversed": (everyone[::-1],),
            "reversed strided": (everyone[::-2], everyone[-2::-2]),
            "overlapping": (everyone[:-1], everyone[1:]),
            "alone": tuple((rank,) for rank in everyone),
        }[kind]
        if group
    )


KINDS = ("consecutive", "strided", "reversed", "reversed strided", "overlapping", "alone")


class Groups:
    """Context manager of process groups. ``mine`` are this rank's groups, as (members in group order, handle)."""

    def __init__(self, env, kind):
        self.all = groups_of(kind, env.world_size)
        self._env = env

    def __enter__(self):
        # Older releases of torch sort the ranks. The order of the created process group is the one that counts.
        self.handles = self._env.new_groups(self.all)
        self.mine = [
            (tuple(dist.get_process_group_ranks(handle)), handle)
            for members, handle in zip(self.all, self.handles, strict=True)
            if self._env.rank in members
        ]
        return self

    def __exit__(self, *exception):
        if exception[0] is None:
            self._env.settle()
            for _, handle in self.mine:
                self._env.destroy_group(handle)


def run_information(env, case):
    """Check extract_group_info on members, and that it and the barriers refuse a rank outside the group."""
    (kind, *uniform) = case.arguments
    findings, information = Findings(env.rank), _information(env)
    with Groups(env, kind) as groups:
        for members, handle in groups.mine:
            stride = members[1] - members[0] if len(members) > 1 else 1
            wanted = (members.index(env.rank), env.rank, len(members), members[0], stride)
            findings.equal(f"extract_group_info of {members}", tuple(information(handle, env.iris)), wanted)
        for members, handle in zip(groups.all, groups.handles, strict=True):
            if env.rank not in members:
                findings.raises(
                    f"extract_group_info of {members} elsewhere",
                    RuntimeError,
                    lambda handle=handle: information(handle, env.iris),
                )
                for name in () if any(uniform) else ("barrier", "device_barrier"):
                    findings.raises(
                        f"{name} of {members} elsewhere",
                        RuntimeError,
                        lambda name=name, handle=handle: getattr(env.iris, name)(group=handle),
                    )
    findings.equal(
        "extract_group_info of the world",
        tuple(information(None, env.iris)),
        (env.rank, env.rank, env.world_size, 0, 1),
    )
    if env.world_size >= 4:
        uneven = (0, 1, 3)
        [handle] = env.new_groups([uneven])
        kind = NotImplementedError if env.rank in uneven else RuntimeError
        findings.raises(f"extract_group_info of {uneven}", kind, lambda: information(handle, env.iris))
        if any(uniform):
            pass
        elif env.rank in uneven:
            env.iris.device_barrier(handle)  # device_barrier accepts any list of ranks
        else:
            findings.raises(f"device_barrier of {uneven}", RuntimeError, lambda: env.iris.device_barrier(handle))
        env.settle()
        if env.rank in uneven:
            env.destroy_group(handle)
    return findings.first


def _information(env):
    return env.module(".ccl.utils").extract_group_info


@requirement("HOST-GROUP-001", cases=lambda ranks: [HostCase("information", (kind, *alike())) for kind in KINDS])
def test_group_information(check, case):
    check(run_information, case)


def run_barriers(env, case):
    """Check that after a group's barrier (of the hosts or of the devices) all members' marks are visible.

    The groups take turns, in the same order on every rank.
    """
    (kind, whose) = case.arguments
    findings, iris = Findings(env.rank), env.under_test.iris(heap_size=1 << 16)
    barrier = iris.barrier if whose == "host" else iris.device_barrier
    marks = env.image.arena[MARKS : MARKS + 4 * CALLS * env.world_size].view(torch.int32)
    marks.fill_(0)
    with Groups(env, kind) as groups:
        for call in range(CALLS):
            for number, (members, handle) in enumerate(groups.mine):
                late = members[(call + number) % len(members)]
                env.late(late, case.late_ms)
                marks[call * env.world_size + number] = 1 + call
                barrier(group=handle)
                for peer in members:
                    mine = [at for at, group in enumerate(groups.all) if peer in group]
                    place = mine.index(groups.all.index(_listed(groups.all, members)))
                    seen = read_word(env, peer, MARKS + 4 * (call * env.world_size + place))
                    findings.equal(f"mark {call} of rank {peer} after the barrier of {members}", seen, 1 + call)
    release(iris)
    return findings.first


def _listed(listed, members):
    """Return the listed group with these members: torch may have changed their order."""
    return next(group for group in listed if sorted(group) == sorted(members))


def barrier_cases(ranks):
    pairs = [(kind, whose) for kind in KINDS for whose in ("host", "device")]
    if any(alike()):  # the first device_barrier of a published group allocates, on all ranks
        pairs.remove(("overlapping", "device"))
    return [HostCase("barriers", pair, late=0, late_ms=8) for pair in pairs]


@requirement("HOST-GROUP-002", cases=barrier_cases)
def test_group_barriers(check, case):
    check(run_barriers, case)


def run_gathers(env, case):
    """Make repeated all_gather calls with changing data, without synchronization, in all groups of a kind at once; then
    a synchronous one in new groups of the same ranks, after the first ones were destroyed."""
    (kind, gluon) = case.arguments
    findings = Findings(env.rank)
    config = env.under_test.config(
        block_size_m=8, block_size_n=64, comm_sms=2, num_warps=env.warps(2), threads_per_warp=env.device.lanes,
        use_gluon=gluon, num_xcds=2, chunk_size=2,
    )  # fmt: skip
    with Groups(env, kind) as groups:
        env.image.reset()
        calls = []
        # Every rank reserves regions for every group, so that offsets agree; only a group's members use its regions.
        sizes = [size for members in groups.all for size in (M * N * 4, len(members) * M * N * 4)] * (CALLS + 1)
        places = iter(starts(1024, sizes))
        for call in range(CALLS + 1):
            for at, members in enumerate(groups.all):
                source, target = next(places), next(places)
                if env.rank in members:
                    own = next(group for group in groups.mine if sorted(group[0]) == sorted(members))
                    calls.append((call, at, own, source, target))
        prepared = [_prepared(env, groups, *call) for call in calls]
        first = len(prepared) - len(groups.mine)
        env.settle()
        with env.acting():
            for output, rows, handle, _, _ in prepared[:first]:
                env.iris.ccl.all_gather(output, rows, group=handle, async_op=True, config=config)
    with Groups(env, kind) as groups:
        with env.acting():
            for (_, handle), (output, rows, *_) in zip(groups.mine, prepared[first:], strict=True):
                env.iris.ccl.all_gather(output, rows, group=handle, config=config)
        env.settle()
        for _, _, _, region, wanted in prepared:
            env.image.expect(region, wanted)
        if difference := env.image.difference():
            findings.first = difference
    return findings.first


def _prepared(env, groups, call, at, own, source, target):
    members, handle = own
    mine = payload("int32", M * N, rank=env.rank, ranks=env.world_size, repetition=call * len(groups.all) + at)
    given = env.image.claim(f"input {call} for {members}", source, M * N, torch.int32)
    gotten = env.image.claim(f"output {call} of {members}", target, len(members) * M * N, torch.int32)
    env.image.fill(given, mine)
    wanted = gathered(mine, handle)
    rows, output = env.image.tensor(given).view(M, N), env.image.tensor(gotten).view(len(members) * M, N)
    return output, rows, handle, gotten, wanted


def gather_cases(ranks):
    # Each size of a group has its own kernels. The first kind of group runs in both languages, the others in Triton.
    return [HostCase("gathers", (kind, gluon)) for kind in KINDS for gluon in (True, False)[kind != KINDS[0] :]]


@requirement("HOST-GROUP-003", cases=gather_cases)
def test_group_gathers(check, case):
    check(run_gathers, case)
