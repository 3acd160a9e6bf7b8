"""Checks for every heap provider: rank functions ``check(env, payload)`` that return the fault, or None.

``env`` is ``fixtures.worker.Env``: each makes its own instances next to the existing one.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.rma.words import read_address
from harness.oracles import gathered

HEAP = 1 << 20
CYCLES = 50


class Instance:
    """The environment that ``conformance.rma`` kernels use, with another instance of the library."""

    def __init__(self, env, iris):
        self.device_context, self.context = env.device_context, iris.get_device_context()
        self.device, self.warps, self.rank = env.device, env.warps, env.rank


def bases(env, payload):
    """Check that bases are distinct and page aligned, and that this rank's is local."""
    iris = env.under_test.iris(heap_size=HEAP)
    table = iris.get_heap_bases().tolist()
    first = iris.empty(1, dtype=torch.uint8)
    wrong = []
    if len(set(table)) != env.world_size:
        wrong.append(f"bases {table} are not all different")
    if any(base % 4096 for base in table):
        wrong.append(f"bases {table} are not page aligned")
    if first.data_ptr() != table[env.rank]:
        wrong.append(f"the first allocation is at {first.data_ptr():#x}, this rank's base is {table[env.rank]:#x}")
    env.settle()
    iris.close()
    return "; ".join(wrong) or None


def table_after_every_allocation(env, payload):
    """Check that what each rank wrote into its newest allocation is at that offset from its base as mapped here.

    ``payload["plant"]`` names a fault that must be noticed: "swap" exchanges two entries of the table, "shift" moves
    the last one by 64 bytes.
    """
    iris = env.under_test.iris(heap_size=HEAP)
    wrong = []
    for turn, count in enumerate((1, 1000, 3, 70_000, 16)):
        block = iris.empty(count, dtype=torch.int32)
        block.fill_(1000 * turn + env.rank)
        table = iris.get_heap_bases().tolist()
        if payload.get("plant") == "swap":
            table[0], table[-1] = table[-1], table[0]
        if payload.get("plant") == "shift":
            table[-1] -= 64 if turn else 0
        offset = block.data_ptr() - iris.get_heap_bases().tolist()[env.rank]
        offsets = gathered(torch.tensor([offset])).tolist()
        if len(set(offsets)) != 1:
            wrong.append(f"allocation {turn} is at offsets {offsets}")
        env.settle()
        for rank, base in enumerate(table):
            seen = read_address(env, base + offset)
            if seen != 1000 * turn + rank:
                wrong.append(f"allocation {turn} of rank {rank} through the table: {seen}, not {1000 * turn + rank}")
        env.settle()
    iris.close()
    return "; ".join(wrong) or None


def remote_write(env, payload):
    """A kernel's put to the right neighbour is what that neighbour finds, by its own tensor."""
    iris = env.under_test.iris(heap_size=HEAP)
    here = env.device.torch_device
    source, target = iris.empty(512, dtype=torch.int32), iris.empty(512, dtype=torch.int32)
    source.copy_(torch.arange(512, dtype=torch.int32) + 1000 * env.rank)
    target.fill_(-1)
    keep = torch.ones(512, dtype=torch.uint8, device=here)
    env.settle()
    launch(
        Instance(env, iris),
        TRANSFERS["put"],
        TransferCase(dtype="int32", n=512, spt=4, warps=2),
        source,
        target,
        keep,
        (env.rank + 1) % env.world_size,
    )
    env.settle()
    left = (env.rank - 1) % env.world_size
    wanted = torch.arange(512, dtype=torch.int32) + 1000 * left
    fine = torch.equal(target.cpu(), wanted)
    iris.close()
    return None if fine else f"from rank {left} came {target[:4].tolist()}..., not {wanted[:4].tolist()}..."


def inside_a_segment(env, payload):
    """Other memory first, of another size on each rank: a pool at some offset of its segment has exact bases too."""
    others = [torch.empty((1 + env.rank) << 18, dtype=torch.uint8, device=env.device.torch_device) for _ in range(3)]
    finding = table_after_every_allocation(env, payload) or remote_write(env, payload)
    del others
    return finding


def exhaustion(env, payload):
    """Every rank gets the same error at the same call, also when only one of them requests too much elsewhere."""
    iris = env.under_test.iris(heap_size=HEAP)
    calls, text = 0, ""
    try:
        while calls < 100:
            iris.empty(30_000, dtype=torch.uint8)
            calls += 1
    except MemoryError as error:
        text = str(error)
    per_rank = gathered(torch.tensor([calls, int(bool(text))])).view(-1, 2).tolist()
    env.settle()
    iris.close()
    fine = 0 < calls < 100 and per_rank == [per_rank[0]] * env.world_size
    return None if fine else f"calls before MemoryError per rank: {per_rank}; {text!r}"


def too_large(env, payload):
    """A heap that the device cannot hold is refused on every rank, and nothing is left of it. vmem needs no memory for
    it, only addresses."""
    for size in (1 << 62,) if env.iris.heap.allocator_type == "vmem" else (1 << 46, 1 << 62):
        try:
            env.under_test.iris(heap_size=size)
        except (ValueError, RuntimeError) as error:
            if str(size) not in str(error):
                return f"the error does not name the size: {error}"
        else:
            return f"a heap of {size} bytes was given"
    return None


def cycles(env, payload):
    """50 instances (or ``payload["cycles"]``) made and closed leave neither memory nor descriptors nor mappings."""

    def one():
        iris = env.under_test.iris(heap_size=8 << 20)
        iris.zeros(64)
        env.settle()
        iris.close()
        del iris
        gc.collect()
        env.settle()

    for _ in range(3):
        one()  # what is kept for the process's life is there now
    gc.freeze()  # need not be looked at again in each cycle: that would take most of the time
    try:
        before = held(env)
        for _ in range(payload.get("cycles", CYCLES)):
            one()
            if payload.get("plant") == "keep":
                _kept.append(env.under_test.iris(heap_size=8 << 20))
        after = held(env)
    finally:
        gc.unfreeze()
    grown = {name: (before[name], after[name]) for name in before if after[name] > before[name] + payload[name]}
    _kept.clear()
    return f"grown: {grown}" if grown else None


def held(env):
    """Return the descriptors, mappings and address ranges of heaps that this process holds, and the bytes of the device
    that all processes hold."""
    counts = {"descriptors": len(os.listdir("/proc/self/fd"))}
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    counts["mappings"] = sum("iris-heap" in line for line in lines)
    # Where the emulated device has its heaps; on GPUs the driver keeps address ranges of its own there.
    emulated = env.device.torch_device.type == "cpu"
    counts["ranges"] = sum(0x1000 <= int(line.split("-")[0], 16) >> 32 < 0x5000 for line in lines) if emulated else 0
    counts["memory"] = 0
    if env.device.torch_device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        counts["memory"] = total - free
    return counts


_kept: list[object] = []
CHECKS = (bases, table_after_every_allocation, remote_write, inside_a_segment, exhaustion, too_large, cycles)
