"""Run named checks: functions ``check(env, findings, *arguments)`` in the file of their requirement."""

from fixtures.addresses import address_of
from fixtures.findings import Findings


def run_named(env, case, checks):
    """Run ``checks[case.what]`` and return the first difference. Every rank must call it."""
    findings = Findings(env.rank)
    checks[case.what](env, findings, *case.arguments)
    env.settle()
    return findings.first


def offset_in_heap(iris, tensor):
    """Return the tensor's offset in bytes from the heap's start."""
    return address_of(tensor) - int(iris.get_heap_bases()[iris.get_rank()])
