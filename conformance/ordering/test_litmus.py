"""Litmus tests: no outcome that the memory model forbids occurs, between ranks with flags at system scope, between
work-groups of one GPU with flags at its scope, and between wavefronts of a work-group with flags at its scope.

On the emulated device they run in ordinary memory and under several schedules of weak memory; on GPUs a launch has
many instances, and the skew varies the timing. The evidence of a case counts the outcomes that occurred.
"""

import torch

from conformance.ordering.cases import RELEASE_WAITS, LitmusCase
from conformance.ordering.kernels import litmus_kernel, wavefront_kernel
from conformance.ordering.litmus import LOCATIONS, SHORT, TESTS, WRITES, delayed, observing, program_of, run_by
from conformance.ordering.model import allowed
from conformance.ordering.outcomes import outcomes
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import adversary
from harness.cases.covering import covering
from harness.oracles import bool_all, gathered
from harness.oracles.heap import starts

SPINS = 1 << 20
"""Polls of a wait. It ends with its thread's launch, so that no rank is left in a kernel."""

SCHEDULES = 2
"""Schedules of weak memory for each case."""

MOST_WEAK = 2048
"""Most elements of a tile in weak memory, which keeps the history of every cache line."""

ARENA = 640 << 10
"""Bytes of a heap that the locations of all instances may take."""

INSTANCES, GPU_INSTANCES = 2, 4096
"""Most instances of a launch on the emulated device, and on GPUs, where only repetition shows a rare outcome."""

SHAPES = ((1, 1, 63), (1, 1, 0), (2, 4, 7), (1, 8, 0), (32, 8, 1))
"""(elements of a thread, wavefronts, elements less than the block) of a tile: from 1 element to 64 KiB."""

ORDERS = (("release", "acquire"), ("acq_rel", "acq_rel"))
RELAXED = ("relaxed", "relaxed")
"""Orders of a flag's writes and reads."""

WAVEFRONTS = tuple(
    {"order": order, "scope": "cta", "warps": warps} for order, warps in zip((*ORDERS, RELAXED), (4, 8, 4), strict=True)
)
"""The variants that are compiled at the scope of a work-group, of 4 or 8 wavefronts."""


def run(env, case):
    schedules = [f"{kind}:{seed}" for seed in range(SCHEDULES // 2) for kind in adversary.KINDS]
    weakens = env.can_weaken and RELEASE_WAITS and case.n <= MOST_WEAK
    for schedule in (None, *(schedules if weakens else ())):
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
    test, image, me, ranks = run_by(case.test, case.scope), env.image, env.rank, env.world_size
    threads, home, there = len(test.threads), case.home % ranks, env.device.torch_device
    as_run = delayed(test, case.skew) if case.scope == "cta" else test
    steps = 4 if case.scope == "cta" else max(2, test.steps)
    n = min(case.n, env.device.lanes) if case.scope == "cta" else case.n
    size = 4 * case.stride
    instances = min(GPU_INSTANCES if env.device.kind.is_gpu else case.instances, ARENA // (4 * size))
    cells_at, source_at = starts(1024, [instances * 4 * size, 3 * size])
    image.reset()
    source = image.claim("values to put", source_at, 3 * case.stride, torch.int32)
    image.fill(source, torch.arange(3, dtype=torch.int32).repeat_interleave(case.stride))
    if me == home:
        cells = image.claim("locations", cells_at, instances * 4 * case.stride, torch.int32)
        image.fill(cells, torch.zeros(cells.count, dtype=torch.int32))
    numbers = range(me, threads, ranks) if case.scope == "sys" else range(threads if me == 0 else 0)
    mine = torch.tensor([*numbers], dtype=torch.int32, device=there)
    program = torch.tensor(program_of(as_run, case.write), dtype=torch.int64, device=there)
    results = torch.zeros(threads, instances, steps, case.stride, dtype=torch.int32, device=there)
    env.settle()
    with env.acting():
        warps = env.warps(case.warps)
        if case.scope == "cta":
            if me == 0:
                spread = [(w - case.skew) % warps for w in range(warps)]
                mine = torch.tensor([t if t < threads else -1 for t in spread], dtype=torch.int32, device=there)
                wavefront_kernel[(1,)](
                    env.device_context, env.context, program, mine, env.pointer(cells_at, torch.int32),
                    image.tensor(source), results, instances, case.stride, n, home,
                    case.release, case.acquire, case.scope, env.device.lanes, warps, num_warps=warps,
                )  # fmt: skip
        elif len(mine):
            litmus_kernel[(len(mine),)](
                env.device_context, env.context, program, mine, env.pointer(cells_at, torch.int32),
                image.tensor(source), results, threads, instances, steps, case.stride, n, home, SPINS, case.skew,
                case.release, case.acquire, case.scope, case.scope, case.spt, env.device.lanes, warps, steps > 2,
                num_warps=warps,
            )  # fmt: skip
    env.settle()
    findings = Findings(me)
    last = image.tensor(cells).cpu() if me == home else torch.zeros(instances * 4 * case.stride, dtype=torch.int32)
    final = gathered(last.to(there).unsqueeze(0))[home].cpu().view(instances, 4, case.stride)
    of_all = gathered(results.unsqueeze(0)).sum(0, dtype=torch.int32).cpu()  # each thread has written its own part
    count = 1 if test.flags_only else n
    if me == home:
        _expect_untouched(image.expected(cells).view(instances, 4, case.stride), final, test, count)
    observed = [
        of_all[thread, :, step, : count if reads else 1].expand(-1, count) for thread, step, reads in observing(as_run)
    ]
    seen = torch.stack(observed, 1) if observed else of_all.new_empty(instances, 0, count)
    ends = final[:, : len(LOCATIONS), :count].clone()
    ends[:, test.flags] = ends[:, test.flags, :1]
    result = outcomes(allowed(test, case.release, case.acquire), seen.numpy(), ends.numpy())
    if me == home:
        env.count(result.counts)
    if result.forbidden:
        instance, element, outcome = result.forbidden
        findings.note(
            f"outcome of {test.name}, instance {instance}, element {element}{where}", outcome, "an allowed one"
        )
    findings.true(f"every wait of {test.name} ends within {SPINS:,} polls{where}", "timeout" not in result.counts)
    return findings.first or image.difference()


def _expect_untouched(expected, final, test, count):
    """Expect the final values where an operation may have written; everything else must be as before."""
    expected[:, : len(LOCATIONS), :count] = final[:, : len(LOCATIONS), :count]
    expected[:, test.flags, 1:] = 0  # a flag is one word, and so is the counter of threads
    expected[:, len(LOCATIONS), :1] = final[:, len(LOCATIONS), :1]


def cases(ranks, test):
    """Return the cases of a test: every pair of a kernel's order, scope and shape and of what is not compiled; then,
    for the short tests, those at the scope of a work-group."""
    litmus = TESTS[test]
    # With relaxed order, accesses of several locations may have any outcome.
    orders = (*ORDERS, RELAXED) if litmus.flags_only and len(litmus.flags_used) == 1 else ORDERS
    shapes = SHAPES[:1] if litmus.flags_only else SHAPES[::2] if litmus.steps > 2 else SHAPES
    compiled = covering({"order": orders, "scope": ("sys", "gpu"), "shape": shapes})
    drawn = {"write": WRITES if litmus.writes else WRITES[:1], "home": (0, 1), "packed": (False, True)}
    everything = {**{name: tuple(dict.fromkeys(row[name] for row in compiled)) for name in compiled[0]}, **drawn}
    rows = covering(
        {**everything, "skew": (0, 3)},
        valid=lambda row: {name: row[name] for name in compiled[0]} in compiled,
    )
    # Wavefronts of tests of flags alone are too few to differ without relaxed order and a start at the same time.
    late, variants = ((2, 1, 0), WAVEFRONTS) if litmus.flags_only else ((2, 1), WAVEFRONTS[:2])
    wavefronts = covering(
        {**drawn, "skew": late, "variant": range(len(variants)), "tail": (63,) if litmus.flags_only else (63, 7)}
    )
    wavefronts = [
        {**row, **variants[row["variant"]], "shape": (1, variants[row["variant"]]["warps"], row["tail"])}
        for row in wavefronts
    ]
    return [_case(test, row) for row in (*rows, *(wavefronts if test in SHORT else ()))]


def _case(test, row):
    return LitmusCase(
        test=test,
        write=row["write"],
        release=row["order"][0],
        acquire=row["order"][1],
        scope=row["scope"],
        spt=row["shape"][0],
        warps=row["shape"][1],
        tail=row["shape"][2],
        home=row["home"],
        instances=INSTANCES,
        skew=row["skew"],
        packed=row["packed"],
    )


@requirement("ORDER-LITMUS-001", cases=cases, ranks=2, weak=False, sampled=True, test=tuple(TESTS))
def test_litmus(check, case):
    check(run, case)
