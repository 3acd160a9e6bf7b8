"""Errors of the heap: a refused call is refused on every rank, and no rank's heap has changed after it."""

import torch

from conformance.host.checks import offset_in_heap
from conformance.support.cases import HostCase, alike
from conformance.support.instances import allocator_of, release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

HEAP = 1 << 19
ALLOCATORS = ("torch", "vmem")


def exhaustion(env, findings, iris):
    """Check that a full heap gives the same error at the same call on all ranks, and that freed memory can be
    allocated again. The error is both a MemoryError and a RuntimeError."""
    tensors, calls = [], 0
    try:
        while calls < 100:
            tensors.append(iris.empty(60_000, dtype=torch.uint8))
            calls += 1
    except MemoryError as error:
        findings.true(f"{type(error).__name__} is a RuntimeError too", isinstance(error, RuntimeError))
    else:
        findings.note("100 allocations of 60,000 bytes", "all succeeded", "MemoryError")
    same_everywhere(env, findings, "calls before MemoryError", calls)
    findings.raises("one byte more than the heap", RuntimeError, lambda: iris.empty(HEAP + 1, dtype=torch.uint8))
    findings.raises("2^62 bytes", MemoryError, lambda: iris.empty(2**62, dtype=torch.uint8))
    place = offset_in_heap(iris, tensors[1])
    iris.free(tensors[1])
    tensors[1] = iris.empty(60_000, dtype=torch.uint8)
    findings.equal("offset of an allocation in a full heap with one hole", offset_in_heap(iris, tensors[1]), place)
    for tensor in tensors:
        iris.free(tensor)
    del tensors
    whole = iris.empty(HEAP, dtype=torch.uint8)
    findings.equal("offset of the whole heap, after everything was freed", offset_in_heap(iris, whole), 0)


def sizes_that_differ(env, findings, iris):
    last = env.world_size - 1
    size = 5 if env.rank == last else 4
    findings.raises("sizes that differ", RuntimeError, lambda: iris.empty(size, dtype=torch.int32), says=f"rank {last}")
    findings.raises(
        "an alignment that changes one rank's offset",
        RuntimeError,
        lambda: after_another(iris, 4096 if env.rank == last else 1024),
    )
    check_in_step(env, findings, iris)


def after_another(iris, alignment):
    first = iris.empty(1, dtype=torch.int32)
    try:
        iris.heap.allocate(4, torch.int32, alignment=alignment)
    finally:
        iris.free(first)


def order_that_differs(env, findings, iris):
    """Check that a rank that frees while others allocate, frees another allocation, or does not call the heap is an
    error on all ranks."""
    first, second = iris.empty(100), iris.empty(200)
    third = iris.empty(100)
    last = env.world_size - 1
    act = (lambda: iris.free(first)) if env.rank == last else (lambda: iris.empty(100))
    findings.raises("a free while others allocate", RuntimeError, act, says=f"rank {last}: free")
    for other in (second, third):
        findings.raises(
            "a free of another allocation",
            RuntimeError,
            lambda other=other: iris.free(other if env.rank == last else first),
            says=f"rank {last}: free",
        )
    for label, elsewhere in (("a barrier", iris.barrier), ("a broadcast", lambda: iris.broadcast(1))):
        for heap_call in (lambda: iris.zeros(5), lambda: iris.free(first)):
            act = elsewhere if env.rank == last else heap_call
            findings.raises(f"{label} while others call the heap", RuntimeError, act, says=f"{last}: ")
    for tensor in (first, second, third):
        iris.free(tensor)
    check_in_step(env, findings, iris)


def wrong_frees(env, findings, iris):
    """Check that a free of anything but a live allocation of this heap is refused on all ranks, whichever rank calls
    it."""
    tensor, empty = iris.zeros(4, 5), iris.zeros(0)
    other = env.under_test.iris(heap_size=HEAP, allocator_type=iris.heap.allocator_type)
    theirs = other.zeros(4, 5)
    gone = iris.zeros(300)
    iris.free(gone)
    here = env.device.torch_device
    for culprit in range(env.world_size):
        for label, wrong in (
            ("an ordinary tensor", torch.zeros(4, 5, device=here)),
            ("another instance's tensor", theirs),
            ("the start of an allocation", tensor.view(-1)[:3]),
            ("the end of an allocation", tensor.view(-1)[1:]),
            ("every second element", tensor.view(-1)[::2]),
            ("one element, expanded", tensor.view(-1)[:1].expand(20)),
            ("a freed tensor", gone),
        ):
            given = wrong if env.rank == culprit else tensor
            says = "" if env.rank == culprit else f"[{culprit}]"
            findings.raises(
                f"free of {label} on rank {culprit}", ValueError, lambda given=given: iris.free(given), says=says
            )
    findings.same("the allocation that was not freed", tensor, torch.zeros(4, 5))
    for right in (empty, tensor.t()):
        iris.free(right)
    findings.raises("a second free", ValueError, lambda: iris.free(tensor))
    env.settle()
    other.close()
    check_in_step(env, findings, iris)


def closed(env, findings, iris):
    second = env.under_test.iris(heap_size=HEAP, allocator_type=iris.heap.allocator_type)
    tensor = second.zeros(4)
    env.settle()
    second.close()
    findings.same("a tensor of a closed instance", tensor, torch.zeros(4))
    for label, act in (
        ("empty", lambda: second.heap.allocate(4, torch.float32)),
        ("free", lambda: second.free(tensor)),
        ("as_symmetric", lambda: second.as_symmetric(tensor)),
    ):
        findings.raises(f"{label} after close", (ValueError, RuntimeError), act, says="closed")


def same_everywhere(env, findings, label, number):
    numbers = gathered(torch.tensor([number])).tolist()
    findings.equal(f"{label} on all ranks", numbers, [numbers[0]] * env.world_size)


def check_in_step(env, findings, iris):
    """Check that the next allocation is at offset 0 on all ranks: refused calls have left no allocation."""
    tensor = iris.zeros(10)
    same_everywhere(env, findings, "offset of the next allocation", offset_in_heap(iris, tensor))
    findings.equal("offset of the next allocation", offset_in_heap(iris, tensor), 0)


ALONE = ("exhaustion", "wrong_frees", "closed")
"""The checks for a world of one rank."""

CHECKS = {check.__name__: check for check in (exhaustion, sizes_that_differ, order_that_differs, wrong_frees, closed)}


def run(env, case):
    findings, (allocator,) = Findings(env.rank), case.arguments
    iris = env.under_test.iris(heap_size=HEAP, allocator_type=allocator)
    CHECKS[case.what](env, findings, iris)
    env.settle()
    iris.close()
    return findings.first


def cases(ranks):
    return [HostCase(name, (kind,)) for name in (CHECKS if ranks > 1 else ALONE) for kind in ALLOCATORS]


@requirement("MEMORY-ERRORS-001", cases=cases)
def test_errors(check, case):
    check(run, case)


def run_choice(env, case):
    """Check the choice of an allocator by argument or environment; an unknown or a different one on some rank is
    refused."""
    findings, make, last = Findings(env.rank), env.under_test.iris, env.world_size - 1
    uniform = any(case.arguments)
    environ = env.module("os").environ
    before = environ.copy()
    try:
        for argument, variable, wanted in (
            ({}, None, "torch"),
            ({"allocator_type": "vmem"}, None, "vmem"),
            ({"allocator_type": "vmem"}, "torch", "torch"),
            ({"allocator_type": "torch"}, "vmem", "vmem"),
            ({"allocator_type": "none such"}, "vmem", "vmem"),
        ):
            environ.pop("IRIS_ALLOCATOR", None)
            if variable is not None:
                environ.update({"IRIS_ALLOCATOR": variable})
            iris = make(heap_size=HEAP, **argument)
            findings.equal(f"allocator of {argument} with IRIS_ALLOCATOR={variable}", allocator_of(env, iris), wanted)
            env.settle()
            release(iris)
        environ.update({"IRIS_SIMULATION": "1"})
        iris = make(heap_size=HEAP, allocator_type="vmem")
        findings.equal("allocator of a simulation", allocator_of(env, iris), "torch")
        env.settle()
        release(iris)
        environ.pop("IRIS_SIMULATION")
        environ.update({"IRIS_ALLOCATOR": "bad"})
        findings.raises("IRIS_ALLOCATOR=bad", ValueError, lambda: make(heap_size=HEAP), says="'bad'")
        environ.pop("IRIS_ALLOCATOR")
        for wrong in ("", "Torch", 7, None):
            findings.raises(
                f"allocator_type={wrong!r}", ValueError, lambda wrong=wrong: make(heap_size=HEAP, allocator_type=wrong)
            )
        if not uniform:
            one = "none such" if env.rank == last else "torch"
            findings.raises(
                "an unknown allocator on one rank", ValueError, lambda: make(heap_size=HEAP, allocator_type=one)
            )
        if env.world_size > 1 and not uniform:
            one = "vmem" if env.rank == last else "torch"
            findings.raises("allocators that differ", ValueError, lambda: make(heap_size=HEAP, allocator_type=one))
    finally:
        environ.clear()
        environ.update(before)
    env.settle()
    return findings.first


@requirement("MEMORY-CHOICE-001", cases=lambda ranks: [HostCase("allocator", alike())])
def test_choice(check, case):
    check(run_choice, case)
