"""Life cycles: an instance releases all resources when it is closed or dropped, and instances alive at the same time do
not affect each other.

Each cycle uses an instance as a user would: tensors, a remote read through its table, a device_barrier, and in some
cycles an asynchronous collective. Afterwards the process must hold the same resources as before: descriptors, mappings,
address space, memory, threads, device memory, and files with its process id in the name.
"""

import gc
import os
import re
import resource
import tempfile
import weakref
from pathlib import Path

import torch

from conformance.collectives.calls import config
from conformance.collectives.operations import COLLECTIVES
from conformance.host.checks import offset_in_heap
from conformance.rma.words import read_address
from conformance.support.cases import HostCase
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement

HEAP = 4 << 20
WARM, ALIVE = 4, 5
ASYNCHRONOUS = 5
"""An asynchronous collective is in every cycle whose number this divides."""
SLACK = {"descriptors": 0, "mappings of files": 4, "address space": 32 << 20, "memory": 16 << 20, "threads": 0,
         "files": 0, "memory of the device": 32 << 20}  # fmt: skip
"""Allowed growth over all cycles: less than one leaked heap, mapping or descriptor per cycle."""
OTHER_MAPPINGS = 0.9
"""The same for other mappings, per cycle: where memory of a heap lay, Python's and libc's own lies in more pieces."""
SLACK_OF_A_GPU = {"descriptors": 4, "mappings of files": 16, "memory": 128 << 20, "threads": 2}
"""Further allowed growth on a GPU, caused by the driver's runtime and torch.distributed's communicators."""


def run_cycles(env, case):
    """Create and release many instances: every other one is closed and kept, if the library can close one, the rest are
    dropped; allocators alternate."""
    findings, cycles = Findings(env.rank), 50 if env.world_size <= 4 else 20
    closed = env.module("collections").deque()  # of the library's process
    peer = (env.rank + 1) % env.world_size
    (handles,) = case.arguments

    def run_turns(turns):
        for turn in range(turns):
            seen, remains = env.in_library(cycle, turn, closed, handles and turn % ASYNCHRONOUS == 0)
            findings.equal(f"value of rank {peer} in instance {turn}", seen, 100 * turn + peer)
            findings.equal(f"instance {turn} remains after its last reference was dropped", remains, False)

    run_turns(WARM)  # allocates what stays for the life of the process
    env.module("harness.garbage").set_aside()
    before = held(env)
    run_turns(cycles)
    after = held(env)
    slack = {**SLACK, "other mappings": int(cycles * OTHER_MAPPINGS)}
    if env.device.torch_device.type == "cuda":
        slack |= SLACK_OF_A_GPU
    for label, limit in slack.items():
        if after[label] > before[label] + limit:
            findings.note(f"{label} after {cycles} instances", after[label], f"at most {before[label] + limit}")
    env.settle()
    return findings.first


def cycle(env, turn, closed, asynchronous):
    """Use an instance and release it. Return the value that it read of the right neighbour, and whether the object
    still exists after an asynchronous call and the drop of its last reference."""
    iris = env.under_test.iris(heap_size=HEAP, allocator_type=("torch", "vmem")[turn // 2 % 2])
    if asynchronous:
        _gather(env, iris)
    seen = _use(env, iris, turn)
    env.settle()
    if turn % 2 and hasattr(iris, "close"):
        iris.close()
        closed.append(iris)
        asynchronous = False
    last = weakref.ref(iris) if asynchronous else None
    del iris
    gc.collect()
    env.settle()
    return seen, last is not None and last() is not None


def _gather(env, iris):
    """Make an asynchronous call, with the kernel of ``CCL-ASYNC-001``, and wait for it."""
    case = COLLECTIVES["all_gather"].case(dtype="fp32", m=9, n=70)
    source, target = iris.ones(case.m, case.n), iris.zeros(env.world_size * case.m, case.n)
    handle = iris.ccl.all_gather(target, source, async_op=True, config=config(env, case, env.world_size))
    handle.synchronize()


def _use(env, iris, turn):
    """Touch the whole heap, so that it takes memory, and read a value of the right neighbour."""
    tensor = iris.full((2,), 100 * turn + env.rank, dtype=torch.int32)
    iris.ones(HEAP // 2, dtype=torch.uint8)
    shared = iris.as_symmetric(tensor.clone())
    if hasattr(iris, "free"):
        iris.free(shared)
    iris.device_barrier()
    peer = (env.rank + 1) % env.world_size
    address = int(iris.get_heap_bases()[peer]) + offset_in_heap(iris, tensor)
    seen = read_address(env, address)
    iris.barrier()
    return seen


def held(env):
    """Return the resources that the library's process holds, and the memory that all processes hold on its device."""
    env.module("gc").collect()
    process = Path("/proc") / str(env.process)
    amounts = dict.fromkeys([*SLACK, "other mappings"], 0)
    amounts["descriptors"] = env.open_descriptors()
    amounts["mappings of files"], amounts["other mappings"] = _mappings(env, process)
    pages = [int(word) for word in (process / "statm").read_text("utf-8").split()]
    amounts["memory"] = pages[1] * resource.getpagesize()
    if env.device.torch_device.type == "cpu":
        # Not on a GPU: torch's symmetric memory unmaps its memory there, but keeps the address ranges.
        amounts["address space"] = pages[0] * resource.getpagesize()
    amounts["threads"] = len(os.listdir(process / "task"))
    for folder in {tempfile.gettempdir(), "/dev/shm"}:
        amounts["files"] += sum(process.name in re.findall(r"\d+", name) for name in os.listdir(folder))
    if env.device.torch_device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        env.settle()  # barrier: ranks that share the GPU have also emptied their caches
        free, total = torch.cuda.mem_get_info()
        amounts["memory of the device"] = total - free
    return amounts


def _mappings(env, process):
    """Count the mappings of a process, those of files and devices and the others; not these on a GPU, whose runtime
    keeps addresses."""
    lines = (process / "maps").read_text("utf-8").splitlines()
    of_files = sum(line.split()[4] != "0" for line in lines)
    return of_files, len(lines) - of_files if env.device.torch_device.type == "cpu" else 0


def cases_of_cycles(ranks):
    return [HostCase("cycles", (judged.offers("ccl.all_gather", "ccl.Work", "ccl.Config"),))]


@requirement("HOST-LIFE-001", cases=cases_of_cycles, weak=False)
def test_life_cycles(check, case):
    check(run_cycles, case, deadline=120)


def run_several(env, case):
    """Use several instances at the same time, each with different contents, and close them in another order than they
    were created; allocators alternate."""
    findings = Findings(env.rank)
    kinds = ("torch", "vmem")
    env.module("harness.garbage").set_aside()
    alive = [(number, env.under_test.iris(1 << 18, kinds[number % 2])) for number in range(ALIVE)]
    tensors = [iris.full((3,), 1000 * number + env.rank, dtype=torch.int32) for number, iris in alive]
    env.settle()
    while alive:
        for number, iris in alive:
            offset = offset_in_heap(iris, tensors[number])
            for rank, base in enumerate(iris.get_heap_bases().tolist()):
                seen = read_address(env, base + offset + 4)
                findings.equal(
                    f"value of rank {rank} in instance {number}, {len(alive)} alive", seen, 1000 * number + rank
                )
            own = [tensors[other] for other, _ in alive if iris.is_symmetric(tensors[other])]
            findings.equal(f"number of tensors that instance {number} reports as symmetric", len(own), 1)
        env.settle()
        _, gone = alive.pop(len(alive) // 2)
        if hasattr(gone, "close"):
            gone.close()
            for label, use in {"zeros": lambda gone=gone: gone.zeros(1), "device_barrier": gone.device_barrier}.items():
                findings.raises(f"{label} of a closed instance", RuntimeError, use, says="closed")
        del gone, iris
        env.module("gc").collect()
        env.settle()
    return findings.first


@requirement("HOST-LIFE-002", cases=lambda ranks: [HostCase("several")], weak=False)
def test_instances_at_once(check, case):
    check(run_several, case, deadline=120)  # it collects garbage once for each instance, which is slow on a busy core
