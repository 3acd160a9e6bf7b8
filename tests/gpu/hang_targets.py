"""Functions that the tests of hangs and faults run on ranks with GPUs: functions of ``fixtures.worker.Env``, most of
them planted faults. They run on the emulated device too, but for the collectives of nccl and what a GPU's fault
does."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from harness.cases.registry import case_type

FLAGS, DATA = 2048, 4096


@case_type
@dataclass(frozen=True)
class FarCase:
    """A write that many bytes after a buffer."""

    distance: int


@triton.jit
def add_one(data):
    tl.store(data, tl.load(data) + 1)


@triton.jit(do_not_specialize=["wanted"])
def wait_for_flag(flag, wanted):
    while tl.load(flag, volatile=True) != wanted:
        pass


@triton.jit
def never_reached(data):
    tl.store(data, 77)


@triton.jit(do_not_specialize=["distance"])
def write_far(data, distance):
    # Through an integer: for AMD GPUs Triton counts offsets from small tensors in 32 bits.
    address = data.to(tl.int64, bitcast=True) + distance
    tl.store(address.to(tl.pointer_type(tl.int32), bitcast=True), 1)


def flags(env):
    """Four flags on this rank's heap, of which the first should become 1, but no rank sets it."""
    env.image.reset()
    region = env.image.claim("flags", FLAGS, 4, torch.int32)
    env.image.fill(region, torch.tensor([100 + env.rank, 0, 0, 0], dtype=torch.int32))
    env.image.expect(region, torch.tensor([1, 0, 0, 0], dtype=torch.int32))
    return env.image.tensor(region)


def data_of(env):
    env.image.reset()
    region = env.image.claim("data", DATA, 1, torch.int32)
    env.image.fill(region, torch.tensor([41], dtype=torch.int32))
    return region


def works(env, case):
    """A case that passes: kernels on every rank, and a collective of the device's backend. It loads whatever the others
    use: to load a kernel may wait for one that runs."""
    region = data_of(env)
    scratch = torch.zeros(1, dtype=torch.int32, device=env.device.torch_device)
    with env.acting():
        add_one[(1,)](env.image.tensor(region))
        wait_for_flag[(1,)](env.image.tensor(region), 42)
        never_reached[(1,)](scratch)
    env.image.expect(region, torch.tensor([42], dtype=torch.int32))
    env.settle()
    total = torch.ones(4, device=env.device.torch_device)
    dist.all_reduce(total)
    assert total.tolist() == [env.world_size] * 4 and scratch.item() == 77
    return env.image.difference()


def spins(env, case):
    """A kernel on every rank that waits for ever, and one behind it."""
    waited = flags(env)
    dist.barrier()
    with env.acting():
        add_one[(1,)](env.pointer(DATA, torch.int32))
        wait_for_flag[(1,)](waited, 1)
        never_reached[(1,)](env.pointer(DATA, torch.int32))
    env.settle()


def collective_without_rank_1(env, case):
    """The others enter an all_reduce on their GPUs, and wait for its end."""
    flags(env)
    total = torch.ones(4, device=env.device.torch_device)
    if env.rank == 1:
        time.sleep(10_000)
    dist.all_reduce(total)
    env.settle()


def device_barrier_without_rank_1(env, case):
    """The second device barrier; the first one of a group is for all ranks, since it allocates."""
    flags(env)
    env.iris.device_barrier()
    env.settle()
    if env.rank == 1:
        time.sleep(10_000)
    with env.acting():
        env.iris.device_barrier()
    env.settle()


def writes_far(env, case):
    """Rank 1 writes where nothing is, guarded as the suite's cases are."""
    region = data_of(env)
    dist.barrier()
    with env.acting():
        write_far[(1,)](env.image.tensor(region), case.distance if env.rank == 1 else 0)
    env.settle()
    return env.image.difference()


def writes_far_unguarded(env, case):
    """Rank 1's fault shows in whatever it does next, outside ``acting``."""
    region = data_of(env)
    dist.barrier()
    write_far[(1,)](env.image.tensor(region), case.distance if env.rank == 1 else 0)
    return {"what": f"got {env.image.tensor(region).item()}"}


def writes_far_beside_a_collective(env, case):
    """All ranks have a collective enqueued behind the kernel that faults on rank 1."""
    region = data_of(env)
    total = torch.ones(4, device=env.device.torch_device)
    dist.barrier()
    with env.acting():
        write_far[(1,)](env.image.tensor(region), case.distance if env.rank == 1 else 0)
        dist.all_reduce(total)
    env.settle()
