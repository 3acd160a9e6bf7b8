"""Kernels of ranks that wait for each other, for the tests of standstills: some for ever, some for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.driver import patience
from harness.oracles import barrier

WORDS = 64


@triton.jit
def polling(flag):
    while tl.load(flag, volatile=True) == 0:
        pass


@triton.jit
def polling_by_atomic(flag):
    while tl.atomic_add(flag, 0) == 0:
        pass


@triton.jit
def polling_and_storing(flag, out):
    while tl.load(flag, volatile=True) == 0:
        tl.store(out, 1)


@triton.jit
def locking(lock, SWAP: tl.constexpr):
    held = 1
    while held != 0:
        held = tl.atomic_xchg(lock, 1) if SWAP else tl.atomic_cas(lock, 0, 1)


@triton.jit
def counting(flag, out, count):
    """Count, which reads nothing that changes, and set the flag."""
    total = 0
    for step in range(count):
        total += tl.load(out, volatile=True) + step
    tl.store(out, total)
    tl.debug_barrier()
    tl.atomic_xchg(flag, 1)


@triton.jit
def counting_by_atomics(flag, out, count):
    """Count, by atomics that change nothing, whose results go through LDS, and set the flag."""
    total = 0
    for step in range(count):
        total += tl.atomic_cas(out, 7, 7) + step
    tl.store(out + 1, total)
    tl.debug_barrier()
    tl.atomic_xchg(flag, 1)


def act(env: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    """Run this rank's part, of ``case["parts"]``, on words that all ranks map. Returns "done"."""
    patience.PATIENCE = 0.2  # type: ignore[misc]
    words = torch.from_file(case["file"], shared=True, size=WORDS, dtype=torch.int32)
    emulator.activate(mode=case["mode"], choices=None if case["mode"] == "fast" else 0)
    barrier()
    PARTS[case["parts"][env["rank"]]](words)
    barrier()
    return "done"


def _poll(words: torch.Tensor) -> None:
    polling[(2,)](words, num_warps=2)


def _poll_by_atomic(words: torch.Tensor) -> None:
    polling_by_atomic[(1,)](words, num_warps=1)


def _poll_and_store(words: torch.Tensor) -> None:
    polling_and_storing[(1,)](words, words[32:], num_warps=1)


def _lock(words: torch.Tensor, warps: int = 1, swap: bool = False) -> None:
    """Wait for a lock that is held."""
    words[1] = 1
    barrier()
    locking[(1,)](words[1:], SWAP=swap, num_warps=warps)


def _unlock_late(words: torch.Tensor) -> None:
    barrier()
    time.sleep(4)
    words[1] = 0


def _leave(words: torch.Tensor) -> None:
    """Go to the barrier."""


def _receive(words: torch.Tensor) -> None:
    """Wait for a message that rank 0 does not send."""
    dist.recv(torch.zeros(1), src=0)


def _sleep(words: torch.Tensor) -> None:
    time.sleep(4)
    words[0] = 1


def _count(words: torch.Tensor) -> None:
    counting[(1,)](words, words[32:], 20_000, num_warps=1)


def _count_by_atomics(words: torch.Tensor) -> None:
    counting_by_atomics[(1,)](words, words[32:], 20_000, num_warps=4)


def _raise(words: torch.Tensor) -> None:
    raise ArithmeticError("planted")


PARTS: dict[str, Callable[[torch.Tensor], None]] = {
    "poll": _poll, "poll by atomic": _poll_by_atomic, "poll and store": _poll_and_store,
    "leave": _leave, "receive": _receive,
    "sleep": _sleep, "count": _count, "count by atomics": _count_by_atomics,
    "raise": _raise,
    "lock": _lock, "lock with 4 warps": partial(_lock, warps=4), "lock by exchange": partial(_lock, swap=True),
    "unlock late": _unlock_late,
}  # fmt: skip
