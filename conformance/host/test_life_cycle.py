"""Life cycles: instances made and given back leave nothing behind, and several that live at once do not touch each
other.

In each cycle an instance is used as a user would: tensors, a remote read through its table, a barrier of devices. What
the process then holds (descriptors, mappings, address space, memory, threads, memory of the device, files with its
process id in the name) must be what it held before.
"""

import gc
import os
import re
import resource
import tempfile
from pathlib import Path

import torch

from conformance.host.checks import offset_in_heap
from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

HEAP = 4 << 20
WARM, ALIVE = 4, 5
SLACK = {"descriptors": 0, "mappings": 4, "address space": 32 << 20, "memory": 16 << 20, "threads": 0, "files": 0,
         "memory of the device": 32 << 20}  # fmt: skip
"""What may be more after all cycles than before them: less than one leaked heap, mapping or descriptor per cycle."""
SLACK_OF_A_GPU = {"descriptors": 4, "mappings": 16, "memory": 128 << 20, "threads": 2}
"""The driver's runtime and the communicators of torch.distributed have lives of their own."""


def run_cycles(env, case):
    """Every other instance is closed and kept, the rest are dropped; the allocators take turns."""
    found, closed, cycles = Findings(env.rank), [], 50 if env.world_size <= 4 else 20
    for turn in range(WARM):
        _cycle(env, found, turn, closed)  # what is kept for the process's life is there now
    gc.freeze()  # and need not be looked at again in each cycle: that would take most of the time
    try:
        before = held(env)
        for turn in range(cycles):
            _cycle(env, found, turn, closed)
        after = held(env)
    finally:
        gc.unfreeze()
    slack = SLACK | (SLACK_OF_A_GPU if env.device.torch_device.type == "cuda" else {})
    for what, limit in slack.items():
        if after[what] > before[what] + limit:
            found.note(f"{what} after {cycles} instances", after[what], f"at most {before[what] + limit}")
    env.settle()
    return found.first


def _cycle(env, found, turn, closed):
    iris = env.under_test.iris(heap_size=HEAP, allocator_type=("torch", "vmem")[turn // 2 % 2])
    _use(env, found, iris, turn)
    env.settle()
    if turn % 2:
        iris.close()
        closed.append(iris)
    del iris
    gc.collect()
    env.settle()


def _use(env, found, iris, turn):
    """This rank's number in the right neighbour's view; the whole heap is touched, so that it costs memory."""
    tensor = iris.full((2,), 100 * turn + env.rank, dtype=torch.int32)
    iris.ones(HEAP // 2, dtype=torch.uint8)
    iris.free(iris.as_symmetric(tensor.clone()))
    iris.device_barrier()
    peer = (env.rank + 1) % env.world_size
    address = int(iris.get_heap_bases()[peer]) + offset_in_heap(iris, tensor)
    found.equal(f"what rank {peer} wrote in instance {turn}", read_address(env, address), 100 * turn + peer)
    iris.barrier()


def held(env):
    """What this process holds, and what anybody holds of its device."""
    gc.collect()
    found = dict.fromkeys(SLACK, 0)
    found["descriptors"] = len(os.listdir("/proc/self/fd"))
    found["mappings"] = len(Path("/proc/self/maps").read_text("utf-8").splitlines())
    pages = [int(word) for word in Path("/proc/self/statm").read_text("utf-8").split()]
    found["memory"] = pages[1] * resource.getpagesize()
    if env.device.torch_device.type == "cpu":
        # Not on a GPU: torch's symmetric memory gives back what it mapped there, but keeps the addresses.
        found["address space"] = pages[0] * resource.getpagesize()
    found["threads"] = len(os.listdir("/proc/self/task"))
    for folder in {tempfile.gettempdir(), "/dev/shm"}:
        found["files"] += sum(str(os.getpid()) in re.findall(r"\d+", name) for name in os.listdir(folder))
    if env.device.torch_device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        env.settle()  # ranks that share the GPU have done so too
        free, total = torch.cuda.mem_get_info()
        found["memory of the device"] = total - free
    return found


@requirement("HOST-LIFE-001", cases=lambda ranks: [HostCase("cycles")])
def test_life_cycles(check, case):
    check(run_cycles, case, deadline=120)


def run_several(env, case):
    """Instances that live at the same time, each with its own contents, closed in another order than they were made;
    the allocators take turns."""
    found = Findings(env.rank)
    kinds = ("torch", "vmem")
    alive = [(number, env.under_test.iris(1 << 18, kinds[number % 2])) for number in range(ALIVE)]
    tensors = [iris.full((3,), 1000 * number + env.rank, dtype=torch.int32) for number, iris in alive]
    env.settle()
    while alive:
        for number, iris in alive:
            offset = offset_in_heap(iris, tensors[number])
            for rank, base in enumerate(iris.get_heap_bases().tolist()):
                seen = read_address(env, base + offset + 4)
                found.equal(f"of rank {rank} in instance {number}, {len(alive)} alive", seen, 1000 * number + rank)
            own = [tensors[other] for other, _ in alive if iris.is_symmetric(tensors[other])]
            found.equal(f"tensors that instance {number} takes for its own", len(own), 1)
        env.settle()
        _, gone = alive.pop(len(alive) // 2)
        gone.close()
        for what, use in {"zeros": lambda gone=gone: gone.zeros(1), "device_barrier": gone.device_barrier}.items():
            found.raises(f"{what} of a closed instance", RuntimeError, use, says="closed")
        env.settle()
    return found.first


@requirement("HOST-LIFE-002", cases=lambda ranks: [HostCase("several")])
def test_instances_at_once(check, case):
    check(run_several, case)
