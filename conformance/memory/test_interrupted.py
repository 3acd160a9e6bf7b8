"""An allocation that fails half-way on one rank, at every step at which it opens a file.

The operating system refuses the rank's k-th further file, for k = 0, 1, ... until the call succeeds, once on the first
rank and once on the last. A heap whose allocations open no file passes at once; creating an instance opens some in any
case.
"""

import contextlib
import gc
import os
import re
import resource

import torch

from conformance.host.checks import offset_in_heap
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import garbage
from harness.oracles import gathered

HEAP = 1 << 19
ALLOCATORS = ("torch", "vmem")

MOST_FILES = 64
"""Files that a call may open at most: a limit for the loop, beyond which it is not tested."""


@contextlib.contextmanager
def files_left(count):
    """Let this process open ``count`` files in the body; None for any number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used, limit = {int(name) for name in os.listdir("/proc/self/fd")}, 0
    free = -1
    while count is not None and free < count:
        free += limit not in used
        limit += free < count
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft if count is None else limit, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _zeros(env, iris):
    return iris.zeros(3000)


def _as_symmetric(env, iris):
    return iris.as_symmetric(torch.full((3000,), 7.0, device=env.device.torch_device))


CALLS = {"zeros": _zeros, "as_symmetric": _as_symmetric}


def run(env, case):
    garbage.set_aside()
    findings, (allocator,) = Findings(env.rank), case.arguments
    iris = env.under_test.iris(heap_size=HEAP, allocator_type=allocator)
    iris.free(CALLS[case.what](env, iris))  # imports what the call needs: a module is a file
    for culprit in sorted({0, env.world_size - 1}):
        for left in range(MOST_FILES):
            if not _fails(env, findings, iris, case.what, culprit, left):
                break
        else:
            findings.note(f"{case.what} with {MOST_FILES} files to open on rank {culprit}", "fails", "succeeds")
    env.settle()
    release(iris)
    return findings.first


def _fails(env, findings, iris, call, culprit, left):
    """Make the call with ``left`` files to open on rank ``culprit``; check that all ranks have the same outcome, and
    that nothing has changed if they have an error. Return whether one has."""
    where = f"{call} with {left} files left on rank {culprit}"
    before, error, tensor = len(os.listdir("/proc/self/fd")), None, None
    try:
        with files_left(left if env.rank == culprit else None):
            tensor = CALLS[call](env, iris)
    except (RuntimeError, OSError, MemoryError) as raised:
        error = f"{type(raised).__name__}: {raised}"
    failed = gathered(torch.tensor([error is not None])).tolist()
    findings.equal(f"ranks on which {where} raises", failed, [any(failed)] * env.world_size)
    if error is not None and env.rank != culprit:
        names = re.search(rf"\b{culprit}\b", error) is not None
        findings.true(f"error of {where} names the rank: {error[:200]}", names)
    if tensor is not None:
        iris.free(tensor)
        del tensor
    again = iris.zeros(300)
    findings.equal(f"offset of the next allocation after {where}", offset_in_heap(iris, again), 0)
    iris.free(again)
    del again
    gc.collect()  # the traceback of an error may hold the tensor that was passed, whose memory is a file
    findings.equal(f"files open after {where}, and another allocation", len(os.listdir("/proc/self/fd")), before)
    return any(failed)


def cases(ranks):
    return [HostCase(name, (kind,)) for name in CALLS for kind in ALLOCATORS]


@requirement(
    "MEMORY-INTERRUPTED-001",
    cases=cases,
    device="emulated",
    because="a GPU's driver may not recover from a file that it cannot open",
    weak=False,  # no kernel runs
)
def test_interrupted(check, case):
    check(run, case)
