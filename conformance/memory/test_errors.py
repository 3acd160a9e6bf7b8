"""What the heap refuses, it refuses on every rank at the same call, and then nothing has changed on any."""

import os

import torch

from conformance.host.checks import offset_in_heap
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase
from harness.oracles import gathered

HEAP = 1 << 19
ALLOCATORS = ("torch", "vmem")


def exhaustion(env, found, iris):
    """The same error at the same call, caught as either of its kinds; what is freed can be had again."""
    tensors, calls = [], 0
    try:
        while calls < 100:
            tensors.append(iris.empty(60_000, dtype=torch.uint8))
            calls += 1
    except MemoryError as error:
        found.true(f"{type(error).__name__} is a RuntimeError too", isinstance(error, RuntimeError))
    else:
        found.note("100 allocations of 60,000 bytes", "all given", "MemoryError")
    same_everywhere(env, found, "calls before MemoryError", calls)
    found.raises("one byte more than the heap", RuntimeError, lambda: iris.empty(HEAP + 1, dtype=torch.uint8))
    found.raises("2^62 bytes", MemoryError, lambda: iris.empty(2**62, dtype=torch.uint8))
    place = offset_in_heap(iris, tensors[1])
    iris.free(tensors[1])
    tensors[1] = iris.empty(60_000, dtype=torch.uint8)
    found.equal("offset of an allocation in a full heap with one hole", offset_in_heap(iris, tensors[1]), place)
    for tensor in tensors:
        iris.free(tensor)
    del tensors
    whole = iris.empty(HEAP, dtype=torch.uint8)
    found.equal("offset of the whole heap, after everything was freed", offset_in_heap(iris, whole), 0)


def sizes_that_differ(env, found, iris):
    last = env.world_size - 1
    size = 5 if env.rank == last else 4
    found.raises("sizes that differ", RuntimeError, lambda: iris.empty(size, dtype=torch.int32), says=f"rank {last}")
    found.raises(
        "an alignment that moves one rank's",
        RuntimeError,
        lambda: after_another(iris, 4096 if env.rank == last else 1024),
    )
    next_is_alike(env, found, iris)


def after_another(iris, alignment):
    first = iris.empty(1, dtype=torch.int32)
    try:
        iris.heap.allocate(4, torch.int32, alignment=alignment)
    finally:
        iris.free(first)


def order_that_differs(env, found, iris):
    """One rank frees where the others allocate, or frees another allocation, or does not ask the heap at all."""
    first, second = iris.empty(100), iris.empty(200)
    third = iris.empty(100)
    last = env.world_size - 1
    act = (lambda: iris.free(first)) if env.rank == last else (lambda: iris.empty(100))
    found.raises("a free where others allocate", RuntimeError, act, says=f"rank {last}: free")
    for other in (second, third):
        found.raises(
            "another allocation freed",
            RuntimeError,
            lambda other=other: iris.free(other if env.rank == last else first),
            says=f"rank {last}: free",
        )
    for what, elsewhere in (("a barrier", iris.barrier), ("a broadcast", lambda: iris.broadcast(1))):
        for asks in (lambda: iris.zeros(5), lambda: iris.free(first)):
            act = elsewhere if env.rank == last else asks
            found.raises(f"{what} where others ask the heap", RuntimeError, act, says=f"{last}: ")
    for tensor in (first, second, third):
        iris.free(tensor)
    next_is_alike(env, found, iris)


def wrong_frees(env, found, iris):
    """No live allocation of this heap: refused on the rank that asks, and on all others, whichever it is."""
    tensor, empty = iris.zeros(4, 5), iris.zeros(0)
    other = env.under_test.iris(heap_size=HEAP, allocator_type=iris.heap.allocator_type)
    theirs = other.zeros(4, 5)
    gone = iris.zeros(300)
    iris.free(gone)
    here = env.device.torch_device
    for culprit in range(env.world_size):
        for what, wrong in (
            ("an ordinary tensor", torch.zeros(4, 5, device=here)),
            ("another instance's tensor", theirs),
            ("the start of an allocation", tensor.view(-1)[:3]),
            ("the end of an allocation", tensor.view(-1)[1:]),
            ("every second element", tensor.view(-1)[::2]),
            ("one element again and again", tensor.view(-1)[:1].expand(20)),
            ("a tensor that was freed", gone),
        ):
            given = wrong if env.rank == culprit else tensor
            says = "" if env.rank == culprit else f"[{culprit}]"
            found.raises(
                f"free of {what} on rank {culprit}", ValueError, lambda given=given: iris.free(given), says=says
            )
    found.same("the allocation that was not freed", tensor, torch.zeros(4, 5))
    for right in (empty, tensor.t()):
        iris.free(right)
    found.raises("free a second time", ValueError, lambda: iris.free(tensor))
    env.settle()
    other.close()
    next_is_alike(env, found, iris)


def closed(env, found, iris):
    second = env.under_test.iris(heap_size=HEAP, allocator_type=iris.heap.allocator_type)
    tensor = second.zeros(4)
    env.settle()
    second.close()
    found.same("a tensor of a closed instance", tensor, torch.zeros(4))
    for what, act in (
        ("empty", lambda: second.heap.allocate(4, torch.float32)),
        ("free", lambda: second.free(tensor)),
        ("as_symmetric", lambda: second.as_symmetric(tensor)),
    ):
        found.raises(f"{what} after close", (ValueError, RuntimeError), act, says="closed")


def same_everywhere(env, found, what, number):
    told = gathered(torch.tensor([number])).tolist()
    found.equal(f"{what} on all ranks", told, [told[0]] * env.world_size)


def next_is_alike(env, found, iris):
    """The ranks are in step, and nothing is left of what was refused."""
    tensor = iris.zeros(10)
    same_everywhere(env, found, "offset of the next allocation", offset_in_heap(iris, tensor))
    found.equal("offset of the next allocation", offset_in_heap(iris, tensor), 0)


ALONE = ("exhaustion", "wrong_frees", "closed")
"""What can go wrong in a world of one."""

CHECKS = {check.__name__: check for check in (exhaustion, sizes_that_differ, order_that_differs, wrong_frees, closed)}


def run(env, case):
    found, (allocator,) = Findings(env.rank), case.arguments
    iris = env.under_test.iris(heap_size=HEAP, allocator_type=allocator)
    CHECKS[case.what](env, found, iris)
    env.settle()
    iris.close()
    return found.first


def cases(ranks):
    return [HostCase(name, (kind,)) for name in (CHECKS if ranks > 1 else ALONE) for kind in ALLOCATORS]


@requirement("MEMORY-ERRORS-001", cases=cases)
def test_errors(check, case):
    check(run, case)


def run_choice(env, case):
    """The allocator that was asked for, by argument or environment; what there is not, or what differs, is refused."""
    found, make, last = Findings(env.rank), env.under_test.iris, env.world_size - 1
    before = dict(os.environ)
    try:
        for argument, variable, wanted in (
            ({}, None, "torch"),
            ({"allocator_type": "vmem"}, None, "vmem"),
            ({"allocator_type": "vmem"}, "torch", "torch"),
            ({"allocator_type": "torch"}, "vmem", "vmem"),
            ({"allocator_type": "none such"}, "vmem", "vmem"),
        ):
            os.environ.pop("IRIS_ALLOCATOR", None)
            if variable is not None:
                os.environ["IRIS_ALLOCATOR"] = variable
            iris = make(heap_size=HEAP, **argument)
            found.equal(f"allocator of {argument} with IRIS_ALLOCATOR={variable}", iris.heap.allocator_type, wanted)
            env.settle()
            iris.close()
        os.environ["IRIS_SIMULATION"] = "1"
        iris = make(heap_size=HEAP, allocator_type="vmem")
        found.equal("allocator of a simulation", iris.heap.allocator_type, "torch")
        env.settle()
        iris.close()
        del os.environ["IRIS_SIMULATION"]
        os.environ["IRIS_ALLOCATOR"] = "bad"
        found.raises("IRIS_ALLOCATOR=bad", ValueError, lambda: make(heap_size=HEAP), says="'bad'")
        os.environ.pop("IRIS_ALLOCATOR")
        for wrong in ("", "Torch", 7, None):
            found.raises(
                f"allocator_type={wrong!r}", ValueError, lambda wrong=wrong: make(heap_size=HEAP, allocator_type=wrong)
            )
        one = "none such" if env.rank == last else "torch"
        found.raises("no such allocator on one rank", ValueError, lambda: make(heap_size=HEAP, allocator_type=one))
        if env.world_size > 1:
            one = "vmem" if env.rank == last else "torch"
            found.raises("allocators that differ", ValueError, lambda: make(heap_size=HEAP, allocator_type=one))
    finally:
        os.environ.clear()
        os.environ.update(before)
    env.settle()
    return found.first


@requirement("MEMORY-CHOICE-001", cases=lambda ranks: [HostCase("allocator")])
def test_choice(check, case):
    check(run_choice, case)
