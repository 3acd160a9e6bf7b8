"""Running named checks: each is a function ``check_NAME(env, found, *arguments)`` in the file of its requirement."""

from fixtures.findings import Findings


def run_named(env, case, checks):
    """Run ``checks[case.what]``; every rank calls it, and it makes the same collective calls on every rank."""
    found = Findings(env.rank)
    checks[case.what](env, found, *case.arguments)
    env.settle()
    return found.first


def offset_in_heap(iris, tensor):
    """Bytes from the heap's start."""
    return tensor.data_ptr() - int(iris.get_heap_bases()[iris.get_rank()])
