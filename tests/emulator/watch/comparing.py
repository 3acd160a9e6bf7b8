"""Programs that the native and the interpreted form of a mode execute, and the choice between the two.

Each program launches kernels that Triton compiles, and returns their results.
"""

import contextlib

import torch

from harness import emulator
from harness.emulator.driver import single
from tests.emulator import memory_kernels, printing_kernels, schedule_kernels


def lock(driver):
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    schedule_kernels.locked_increments[(5,)](lock, counter, 2, num_warps=1)
    return counter.item()


def produce(driver):
    data, out, flags = (torch.zeros(n, dtype=torch.int32) for n in (512, 512, 4))
    schedule_kernels.produce_consume[(8,)](data, flags, out, 128, 2, True, num_warps=2)
    return data.tolist(), out.tolist()


def prints(driver):
    lines = []
    driver.write = lines.append
    printing_kernels.print_scalars[(2,)](3, num_warps=2)
    return lines


def spills(driver):
    a, out = torch.arange(4096, dtype=torch.float32) % 7, torch.empty(4096)
    memory_kernels.running_sum[(1,)](a, out, 4096, num_warps=1, waves_per_eu=8)
    return out.tolist()


def multiplies(driver):
    """Matrix products by LDS, with barriers."""
    a, b = torch.arange(64 * 64).view(64, 64).half() % 5, torch.arange(64 * 64).view(64, 64).half() % 7
    c = torch.empty(64, 64)
    memory_kernels.pipelined[(1,)](a, b, c, 64, 64, 64, 64, num_warps=4)
    return c.tolist()


KERNELS = (lock, produce, prints, spills, multiplies)


def waits(driver):
    """Work-groups that wait for others with higher numbers."""
    data, out, flags = (torch.zeros(n, dtype=torch.int32) for n in (512, 512, 4))
    schedule_kernels.produce_consume[(8,)](data, flags, out, 128, 2, False, num_warps=2)
    return data.tolist(), out.tolist()


def many(driver):
    """More work-groups than ``RESIDENT_WAVES``, where a test sets that."""
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    schedule_kernels.locked_increments[(23,)](lock, counter, 1, num_warps=1)
    return counter.item()


@contextlib.contextmanager
def activated(mode, seed, is_native, monkeypatch):
    """The driver in a mode whose programs all run as native code, or are all interpreted."""
    plain = single.decode

    def decode(listing, watch, without=None):
        decoded = plain(listing, watch, without)
        if is_native:
            decoded.heat.use()
        decoded.heat.done = True
        return decoded

    with monkeypatch.context() as patch:
        patch.setattr(single, "decode", decode)
        try:
            yield emulator.activate(mode=mode, choices=seed)
        finally:
            emulator.deactivate()


def counts_of(driver):
    """Return the counters of the launches since the last call."""
    launches = driver.drain_launches()
    return [(each.instructions, each.lanes, [a.lanes for a in each.accesses]) for each in launches]
