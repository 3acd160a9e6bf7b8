"""GPUs for one rank group at a time, among all processes of this machine that use this harness.

    lease = leases.acquire(inventory.visible("cuda"), count=2, wait=300.0, tell=print)
    with RankGroup(2, ..., environment=lease.environment("cuda"), hold=lease.descriptors) as group:
        ...
    lease.release()

A GPU's lock is a Unix socket bound to an abstract name made of the GPU's UUID. The kernel gives a name to one socket,
and takes it back when the last process that has the socket open is gone: the group's processes inherit it, so the GPUs
of a controller that was killed come back exactly when its ranks are gone, and nothing is left in the file system. The
socket listens, so that whoever waits can ask the kernel for the pid of the holder. Abstract names belong to a network
namespace: containers that share GPUs but not their network do not see each other's locks.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from harness.devices.inventory import MASKS, GpuInfo, mask_entries
from harness.devices.occupancy import UnreadableError, memory_in_use, users_of
from harness.errors import HarnessError, UsageError

MEMORY_LIMIT = 30.0
"""Seconds that the memory of ended ranks has to be free again; it takes a few tenths."""

MEMORY_SLACK = 32 << 20
"""Bytes by which the memory in use may differ without anyone having allocated anything: the driver's own."""

_PREFIX = "\0iris-harness-gpu-"
_MOST_QUESTIONS = 4096  # who waits asks twice at most; the kernel keeps the questions until the lock is closed
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Lease:
    """GPUs that are this process's until ``release``. ``gpus``: rank r is on the r-th, modulo how many there are;
    ``descriptors``: keep the locks while they are open in any process."""

    def __init__(
        self, gpus: tuple[GpuInfo, ...], locks: tuple[socket.socket, ...], tell: Callable[[str], None]
    ) -> None:
        self.gpus = gpus
        self._locks = locks
        self._before: tuple[int, ...] | None = None
        try:
            self._before = _settled(gpus)
        except UnreadableError as error:
            tell(f"whether the memory of GPUs comes back cannot be checked: {error}")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The locks' file descriptors, for processes that shall hold the GPUs too."""
        return tuple(lock.fileno() for lock in self._locks)

    def environment(self, device: str, caller: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What makes a process see just these GPUs of ``device`` ("cuda" or "rocm"), in rank order.

        By UUID on CUDA, which means the same under any mask. HIP takes indices, which count within what
        ROCR_VISIBLE_DEVICES leaves: they are taken from the caller's mask where it has one.
        """
        if device == "cuda":
            return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in self.gpus)}
        entries = mask_entries(device, caller)
        chosen = ",".join(str(gpu.index) if entries is None else entries[gpu.index] for gpu in self.gpus)
        first, *others = MASKS[device]
        return {first: chosen, **{name: chosen for name in others if name in caller}}

    def release(self, limit: float = MEMORY_LIMIT) -> None:
        """Give the GPUs back, once their memory in use is what it was before. Idempotent.

        Call it when the processes that used them are gone. Raises HarnessError, with pids and bytes, when the memory
        is not back within ``limit`` seconds: the GPUs then stay locked until this process ends.
        """
        if self._locks and self._before is not None:
            for gpu, before in zip(self.gpus, self._before, strict=True):
                _await_memory(gpu, before, time.monotonic() + limit, limit)
        for lock in self._locks:
            lock.close()
        self._locks = ()


def acquire(gpus: Sequence[GpuInfo], count: int, wait: float, tell: Callable[[str], None]) -> Lease:
    """``count`` of the GPUs, or none: whoever gets fewer gives them back and tries again, for ``wait`` seconds.

    ``tell`` is called with one line when it has to wait. Raises UsageError that names the holders when time is over,
    or when there are not so many GPUs.
    """
    if not 1 <= count <= len(gpus):
        raise UsageError(f"{count} of {len(gpus)} GPUs cannot be had: ask for 1 to {len(gpus)}")
    limit = time.monotonic() + wait
    names = _names(gpus)
    own = [gpu for gpu, name in zip(gpus, names, strict=True) if holder(gpu, name) == os.getpid()]
    if len(gpus) - len(own) < count:
        raise HarnessError(f"{len(own)} of {len(gpus)} GPUs are held by this process itself, and {count} are asked for")
    pause = _FIRST_PAUSE
    while (taken := _take(names, count)) is None:
        if time.monotonic() >= limit:
            raise UsageError(
                f"no {count} of {len(gpus)} GPUs were free within {wait:g} s ({_holders(gpus, names)}): wait for their"
                " runs to end, or choose other GPUs"
            )
        if pause == _FIRST_PAUSE:
            tell(f"waiting up to {wait:g} s for {count} of {len(gpus)} GPUs ({_holders(gpus, names)})")
        # At random, so that those who wait do not meet again and again.
        time.sleep(min(random.uniform(0.5, 1.0) * pause, max(0.0, limit - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return Lease(tuple(gpus[index] for index in taken), tuple(taken.values()), tell)


def holder(gpu: GpuInfo, name: str | None = None) -> int | None:
    """The pid of the process that took the GPU (0: it cannot be seen from here); None while it is free."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as question:
        question.setblocking(False)
        try:
            question.connect(name or _PREFIX + gpu.uuid)
        except ConnectionRefusedError:
            return None
        except BlockingIOError:  # asked too often: nobody answers these questions, they are kept
            return 0
        pid, _, _ = struct.unpack("3i", question.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(pid)


def _names(gpus: Sequence[GpuInfo]) -> list[str]:
    """One name per GPU. UsageError where two have one UUID: another process may see them in another order."""
    for uuid, count in Counter(gpu.uuid for gpu in gpus).items():
        if count > 1:
            raise UsageError(
                f"{count} of the visible GPUs have the UUID {uuid}: partitions of one GPU cannot be told apart between"
                " processes, so choose one of them by the visible devices"
            )
    return [_PREFIX + gpu.uuid for gpu in gpus]


def _take(names: Sequence[str], count: int) -> dict[int, socket.socket] | None:
    """Locks of ``count`` names, by their places in the list; None, and none of them, when fewer are free."""
    taken: dict[int, socket.socket] = {}
    try:
        for index, name in enumerate(names):
            if (lock := _lock(name)) is not None:
                taken[index] = lock
            if len(taken) == count:
                return taken
    except BaseException:
        _close(taken)
        raise
    _close(taken)
    return None


def _close(taken: Mapping[int, socket.socket]) -> None:
    for lock in taken.values():
        lock.close()


def _lock(name: str) -> socket.socket | None:
    """The lock of that name; None when somebody has it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(name)
        lock.listen(_MOST_QUESTIONS)
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return lock


def _holders(gpus: Sequence[GpuInfo], names: Sequence[str]) -> str:
    """As in ``pid 71 holds 0, 1; pid 80, which has ended, holds 2 by its ranks``."""
    held: dict[int, list[str]] = {}
    for gpu, name in zip(gpus, names, strict=True):
        if (pid := holder(gpu, name)) is not None:
            held.setdefault(pid, []).append(str(gpu.index))
    return "; ".join(f"{_who(pid)} {', '.join(indices)}" for pid, indices in held.items()) or "they were free again"


def _who(pid: int) -> str:
    if pid == 0:
        return "a process that cannot be seen from here holds"
    if pid == os.getpid():
        return f"this process, pid {pid}, holds"
    ended = not os.path.exists(f"/proc/{pid}")
    return f"the ranks of pid {pid}, which has ended, hold" if ended else f"pid {pid} holds"


def _settled(gpus: Sequence[GpuInfo]) -> tuple[int, ...]:
    """Bytes in use on each, once two readings agree or 5 s are over: an earlier holder's memory may just be going."""
    end = time.monotonic() + 5.0
    found = tuple(map(memory_in_use, gpus))
    while time.monotonic() < end:
        time.sleep(0.05)
        again = tuple(map(memory_in_use, gpus))
        if again == found:
            break
        found = again
    return found


def _await_memory(gpu: GpuInfo, before: int, end: float, limit: float) -> None:
    while (used := memory_in_use(gpu)) > before + MEMORY_SLACK:
        if time.monotonic() >= end:
            raise HarnessError(
                f"GPU {gpu}: {used - before:,} bytes more in use than before its ranks started, {limit:g} s after they"
                f" ended; used by {_users(gpu)}"
            )
        time.sleep(0.05)


def _users(gpu: GpuInfo) -> str:
    try:
        found = [f"pid {pid} ({'unknown' if size is None else f'{size:,}'} bytes)" for pid, size in users_of(gpu)]
    except UnreadableError as error:
        return f"processes that cannot be told ({error})"
    return ", ".join(found) or "no process that can be seen from here"
