"""power_of_two and linear_range, compared with their definitions."""

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case):
    findings, bench = Findings(env.rank), env.under_test.module.bench
    start, length, step = case.arguments
    end = start + length
    powers, values = list(bench.power_of_two(start, end)), list(bench.linear_range(start, end, step))
    findings.equal(f"power_of_two({start}, {end})", powers, [2**exponent for exponent in range(start, end + 1)])
    wanted = [value for value in range(start, end + 1) if (value - start) % step == 0]
    findings.equal(f"linear_range({start}, {end}, {step})", values, wanted)
    return findings.first


def cases(ranks):
    from hypothesis import strategies as st

    arguments = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 25))
    return st.builds(lambda given: HostCase("ranges", given), arguments)


@requirement("BENCH-AXES-001", cases=cases, weight=0.5, weak=False, one_process_on_gpus="")
def test_ranges(check, case):
    check(run, case)
