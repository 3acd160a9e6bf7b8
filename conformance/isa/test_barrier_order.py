"""What device_barrier compiles to orders memory between devices.

A barrier that lets nobody past too early and orders nothing looks right in every run in which memory happens to be in
order, so the code is read: a release at system scope before others can see that this rank has come, an acquire at
system scope behind the poll that saw them, and no atomic at a narrower scope.
"""

from conformance.isa.targets import barrier_order
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import HostCase


def run(env, case):
    found = Findings(env.rank)
    iris = env.under_test.iris(heap_size=1 << 16)
    env.settle()
    env.launched()
    with env.acting():
        iris.device_barrier()
    env.settle()
    codes = [code for launch in env.launched() for code in isa.codes_of(launch)]
    found.true("code of device_barrier to look at", codes)
    for language in {code.language for code in codes}:
        for part, fine in barrier_order([code for code in codes if code.language == language]).items():
            found.true(f"{part} ({language}) of device_barrier", fine)
    iris.close()
    return found.first


@requirement("HOST-DEVICE-BARRIER-004", cases=lambda ranks: [HostCase("barrier_order")])
def test_barrier_order(check, case):
    check(run, case)
