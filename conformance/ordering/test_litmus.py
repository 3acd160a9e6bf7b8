"""Litmus tests: no outcome that the memory model forbids occurs between ranks, with flags at system scope.

On the emulated device they run in ordinary memory and under several schedules of weak memory; on GPUs the instances of
a launch and the skew vary the timing.
"""

import torch

from conformance.ordering.cases import RELEASE_WAITS, LitmusCase
from conformance.ordering.kernels import litmus_kernel
from conformance.ordering.litmus import LOCATIONS, TESTS, WRITES, first_forbidden, observing, program_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import adversary
from harness.cases.covering import covering
from harness.oracles import bool_all, gathered
from harness.oracles.heap import starts

SPINS = 1 << 20
"""Polls of a wait. It ends with its thread's launch, so that no rank is left in a kernel."""

FORBID = tuple(name for name, test in TESTS.items() if test.forbids)

SCHEDULES = 2
"""Schedules of weak memory for each case."""


def run(env, case):
    schedules = [f"{kind}:{seed}" for seed in range(SCHEDULES // 2) for kind in adversary.KINDS]
    for schedule in (None, *(schedules if env.can_weaken and RELEASE_WAITS else ())):
        if schedule is None:
            mismatch = _run(env, case, "")
        else:
            with env.scheduled(schedule):
                mismatch = _run(env, case, f" in weak memory ({schedule})")
        if not bool_all(mismatch is None and env.fault is None):
            return mismatch
    return None


def _run(env, case, where):
    """Run all instances once, and return the first forbidden outcome or wrong byte."""
    test, image, me, ranks = TESTS[case.test], env.image, env.rank, env.world_size
    threads, home, there = len(test.threads), case.home % ranks, env.device.torch_device
    size = 4 * case.block
    cells_at, source_at = starts(1024, [case.instances * 4 * size, 3 * size])
    image.reset()
    source = image.claim("values to put", source_at, 3 * case.block, torch.int32)
    image.fill(source, torch.arange(3, dtype=torch.int32).repeat_interleave(case.block))
    if me == home:
        cells = image.claim("locations", cells_at, case.instances * 4 * case.block, torch.int32)
        image.fill(cells, torch.zeros(cells.count, dtype=torch.int32))
    mine = torch.tensor([*range(me, threads, ranks)], dtype=torch.int32, device=there)
    program = torch.tensor(program_of(test, case.write), dtype=torch.int32, device=there)
    results = torch.zeros(threads, case.instances, 2, case.block, dtype=torch.int32, device=there)
    env.settle()
    with env.acting():
        warps = env.warps(case.warps)
        if len(mine):
            litmus_kernel[(len(mine),)](
                env.device_context, env.context, program, mine, env.pointer(cells_at, torch.int32),
                image.tensor(source), results, threads, case.instances, case.block, case.n, home, SPINS, case.skew,
                case.release, case.acquire, "sys", "sys", case.spt, env.device.lanes, warps, num_warps=warps,
            )  # fmt: skip
    env.settle()
    findings = Findings(me)
    last = image.tensor(cells).cpu() if me == home else torch.zeros(case.instances * 4 * case.block, dtype=torch.int32)
    final = gathered(last.to(there).unsqueeze(0))[home].cpu().view(case.instances, 4, case.block)
    of_all = gathered(results.unsqueeze(0)).sum(0, dtype=torch.int32).cpu()  # each thread has written its own part
    if me == home:
        count = 1 if test.flags_only else case.n
        _expect_untouched(image.expected(cells).view(case.instances, 4, case.block), final, test, count)
    seen = [
        [of_all[thread, i, step, : case.n].tolist() for thread, step in observing(test)] for i in range(case.instances)
    ]
    ends = final[:, : len(LOCATIONS), : case.n]
    ends = ends[..., :1].expand_as(ends) if test.flags_only else ends
    if wrong := first_forbidden(test, seen, ends.tolist()):
        instance, element, outcome = wrong
        findings.note(
            f"outcome of {test.name}, instance {instance}, element {element}{where}", outcome, "an allowed one"
        )
    findings.true(f"every wait of {test.name} ends within {SPINS:,} polls{where}", not bool((of_all == -1).any()))
    return findings.first or image.difference()


def _expect_untouched(expected, final, test, count):
    """Expect the final values where an operation may have written; everything else must be as before."""
    expected[:, :, :count] = final[:, :, :count]
    expected[:, len(LOCATIONS), 1:] = 0  # the counter of threads is one word


def cases(ranks, test):
    shapes = ((1, 1), (2, 4)) if not TESTS[test].flags_only else ((1, 1),)
    orders = (("release", "acquire"), ("acq_rel", "acq_rel"))
    parameters = {
        "order": (*orders, ("relaxed", "relaxed")) if TESTS[test].relaxed else orders,
        "write": WRITES
        if any(name == "write" for thread in TESTS[test].threads for name, _, _ in thread)
        else WRITES[:1],
        "shape": shapes,
        "home": (0, 1),
        "skew": (0, 3),
    }
    return [
        LitmusCase(
            test=test,
            write=row["write"],
            release=row["order"][0],
            acquire=row["order"][1],
            spt=row["shape"][0],
            warps=row["shape"][1],
            tail=7 * row["home"],
            home=row["home"],
            skew=row["skew"],
        )
        for row in covering(parameters)
    ]


@requirement("ORDER-LITMUS-001", cases=cases, ranks=2, weak=False, test=FORBID)
def test_litmus(check, case):
    check(run, case)
