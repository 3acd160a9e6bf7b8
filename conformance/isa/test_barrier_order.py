"""The compiled device_barrier orders memory between devices.

A barrier that makes ranks wait but does not order memory gives right results in every run in which memory happens to be
in order. So the test reads the compiled code: it must have a release at system scope before this rank announces its
arrival, an acquire at system scope after the poll for the other ranks, and no atomic at a narrower scope.
"""

from conformance.isa.targets import barrier_order
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa


def run(env, case):
    findings = Findings(env.rank)
    iris = env.under_test.iris(heap_size=1 << 16)
    env.settle()
    env.launched()
    with env.acting():
        iris.device_barrier()
    env.settle()
    codes = [code for launch in env.launched() for code in isa.codes_of(launch)]
    findings.true("device_barrier launched a kernel and its code was recorded", codes)
    for language in {code.language for code in codes}:
        for part, fine in barrier_order([code for code in codes if code.language == language]).items():
            findings.true(f"{part} ({language}) of device_barrier", fine)
    release(iris)
    return findings.first


@requirement("HOST-DEVICE-BARRIER-004", cases=lambda ranks: [HostCase("barrier_order")], weak=False)
def test_barrier_order(check, case):
    check(run, case)
