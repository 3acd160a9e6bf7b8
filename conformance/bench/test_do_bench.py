"""do_bench: what it calls and how often, what it returns of the times, and that the times are those of the function.

The function sleeps, so its time is known from below on every device: an event before it is reached while the device is
idle. Sleeps are far enough apart that a busy machine does not mix them up.
"""

import itertools
import time

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

SHORT_MS, LONG_MS = 1.0, 150.0
BETWEEN_MS = 0.3 * LONG_MS  # below the mean
MODES = ("mean", "median", "min", "max", "all")


def run_calls(env, case):
    """Every rank makes the same call, with a barrier of the ranks in it."""
    n_warmup, n_repeat, mode = case.arguments
    found, calls, times = Findings(env.rank), [], []

    def barrier():
        calls.append("barrier")
        env.iris.barrier()

    with env.acting():
        times = env.under_test.module.do_bench(
            lambda: calls.append("fn"),
            barrier_fn=barrier,
            preamble_fn=lambda: calls.append("preamble"),
            n_warmup=n_warmup,
            n_repeat=n_repeat,
            return_mode=mode,
        )
    env.settle()
    found.equal("calls of fn", calls.count("fn"), 1 + n_warmup + n_repeat)
    # The first call is the untimed one.
    places = [index for index, call in enumerate(calls) if call == "fn"]
    for earlier, later in itertools.pairwise(places):
        found.equal("between two calls of fn", calls[earlier + 1 : later], ["barrier", "preamble", "barrier"])
    if mode == "all":
        found.equal("number of times", len(times), n_repeat)
    found.true(f"times are not negative: {times}", all(each >= 0 for each in (times if mode == "all" else [times])))
    return found.first


def run_times(env, case):
    """Of three timed calls the last is long; preambles are long too, and must not count."""
    found = Findings(env.rank)

    def measured(**asked):
        durations = iter([SHORT_MS, SHORT_MS, SHORT_MS, LONG_MS])  # the first call is not timed
        return env.under_test.module.do_bench(
            lambda: time.sleep(next(durations) / 1e3),
            preamble_fn=lambda: time.sleep(LONG_MS / 1e3) if asked.get("return_mode") == "min" else None,
            n_warmup=0,
            n_repeat=3,
            **asked,
        )

    (what,) = case.arguments
    got = float("nan")
    with env.acting():
        got = measured(quantiles=[0.0, 1.0]) if what == "quantiles" else measured(return_mode=what)
    env.settle()
    if what in {"min", "median"}:
        found.true(f"{what} is short: {got} ms", SHORT_MS <= got < BETWEEN_MS)
    elif what == "max":
        found.true(f"max is long: {got} ms", got >= LONG_MS)
    elif what == "mean":
        found.true(f"mean is in between: {got} ms", (LONG_MS + 2 * SHORT_MS) / 3 <= got < LONG_MS)
    else:
        found.true(f"{what} in order, the last long: {got} ms", got[0] < BETWEEN_MS and got[-1] >= LONG_MS)
    return found.first


def call_cases(ranks):
    from hypothesis import strategies as st

    arguments = st.tuples(st.integers(0, 4), st.integers(1, 6), st.sampled_from(MODES))
    return st.builds(lambda given: HostCase("calls", given), arguments)


@requirement("BENCH-TIME-001", cases=call_cases, weight=0.25)
def test_calls(check, case):
    check(run_calls, case)


def time_cases(ranks):
    return [HostCase("times", (what,)) for what in (*MODES, "quantiles")]


# Where ranks share a GPU, one is not idle when another one's event is due.
@requirement("BENCH-TIME-002", cases=time_cases, own_gpu=True, because="other work on a GPU changes the times")
def test_times(check, case):
    check(run_times, case)
