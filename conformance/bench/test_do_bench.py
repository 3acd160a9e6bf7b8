"""do_bench: the functions that it calls and how often, the statistics that it returns, and that it times the function.

The timed function sleeps, so that its time has a known lower bound on every device: the device is idle when it reaches
the event before the function. The two durations differ so much that a busy machine cannot confuse them.
"""

import itertools
import time

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

SHORT_MS, LONG_MS = 1.0, 150.0
BETWEEN_MS = 0.3 * LONG_MS  # below the mean
MODES = ("mean", "median", "min", "max", "all")


def run_calls(env, case):
    """Call do_bench on every rank, with a barrier of all ranks inside."""
    n_warmup, n_repeat, mode = case.arguments
    findings, calls, times = Findings(env.rank), [], []
    with env.acting():
        calls, times = env.in_library(noted_calls, {"n_warmup": n_warmup, "n_repeat": n_repeat, "return_mode": mode})
    env.settle()
    findings.equal("calls of fn", calls.count("fn"), 1 + n_warmup + n_repeat)
    # The first call is the untimed one.
    places = [index for index, call in enumerate(calls) if call == "fn"]
    for earlier, later in itertools.pairwise(places):
        findings.equal("between two calls of fn", calls[earlier + 1 : later], ["barrier", "preamble", "barrier"])
    if mode == "all":
        findings.equal("number of times", len(times), n_repeat)
    findings.true(f"times are not negative: {times}", all(each >= 0 for each in (times if mode == "all" else [times])))
    with env.acting():
        calls, times = env.in_library(noted_calls, {"n_warmup": 0, "n_repeat": 1, "return_mode": "all"})
    env.settle()
    findings.equal("calls of fn without warm-up, timed once", (calls.count("fn"), len(times)), (2, 1))
    return findings.first


def noted_calls(env, options):
    """Return the calls that do_bench makes, by name, and its times."""
    calls = []

    def barrier():
        calls.append("barrier")
        env.iris.barrier()

    times = env.under_test.module.do_bench(
        lambda: calls.append("fn"), barrier_fn=barrier, preamble_fn=lambda: calls.append("preamble"), **options
    )
    return calls, times


def run_times(env, case):
    """Time three calls of which the last is long. Preambles are long too and must not be included."""
    findings = Findings(env.rank)
    (label,) = case.arguments
    got = float("nan")
    with env.acting():
        options = {"quantiles": [0.0, 1.0]} if label == "quantiles" else {"return_mode": label}
        got = env.in_library(measured, options)
    env.settle()
    if label in {"min", "median"}:
        findings.true(f"{label} is short: {got} ms", SHORT_MS <= got < BETWEEN_MS)
    elif label == "max":
        findings.true(f"max is long: {got} ms", got >= LONG_MS)
    elif label == "mean":
        findings.true(f"mean is in between: {got} ms", (LONG_MS + 2 * SHORT_MS) / 3 <= got < LONG_MS)
    else:
        findings.true(f"{label} in order, the last long: {got} ms", got[0] < BETWEEN_MS and got[-1] >= LONG_MS)
    return findings.first


def measured(env, options):
    """Return what do_bench returns for calls of known durations."""
    durations = iter([SHORT_MS, SHORT_MS, SHORT_MS, LONG_MS])  # the first call is not timed
    return env.under_test.module.do_bench(
        lambda: time.sleep(next(durations) / 1e3),
        preamble_fn=lambda: time.sleep(LONG_MS / 1e3) if options.get("return_mode") == "min" else None,
        n_warmup=0,
        n_repeat=3,
        **options,
    )


def call_cases(ranks):
    from hypothesis import strategies as st

    arguments = st.tuples(st.integers(0, 4), st.integers(1, 6), st.sampled_from(MODES))
    return st.builds(lambda given: HostCase("calls", given), arguments)


@requirement("BENCH-TIME-001", cases=call_cases, weight=0.25, weak=False)
def test_calls(check, case):
    check(run_calls, case)


def time_cases(ranks):
    return [HostCase("times", (label,)) for label in (*MODES, "quantiles")]


# If ranks share a GPU, it is not idle when a rank's event is reached.
@requirement(
    "BENCH-TIME-002", cases=time_cases, own_gpu=True, because="other work on a GPU changes the times", weak=False
)
def test_times(check, case):
    check(run_times, case)
