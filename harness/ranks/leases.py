"""Leases of GPUs: each GPU serves one rank group at a time, among all processes on this machine that use this harness.

    lease = leases.acquire(inventory.visible("cuda"), count=2, wait=300.0, report=print)
    with RankGroup(2, ..., environment=lease.environment(), hold=lease.descriptors) as group:
        ...
    lease.release()

A GPU's lock is a file lock (see ``harness.locks``) named after the GPU's UUID, in a folder to which only this user can
write: ``~/.cache/iris-harness/gpus``, with the home folder from the user database, or ``/tmp/iris-harness-UID`` if that
home folder cannot be written. Neither depends on the environment, and both outlast a login, so all runs of a user use
the same folder. The group's processes inherit the open file: if a controller is killed, its GPUs are free as soon as
its ranks have ended. ``release`` removes the file; a killed run leaves it, and the next run takes it over.

Locks do not work between users: any user could hold a lock that every user can take for ever. Instead, a GPU on which
a process of another user runs is not leased, and messages name that process. One gap remains: for the few seconds
between a lease and the first use of the GPU, two users can lease the same one. ``release`` then raises for the memory
that the other user's run holds. Processes that cannot be seen from here, such as those of another container, are
reported and do not block a lease.
"""

from __future__ import annotations

import os
import pwd
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness import locks
from harness.devices import gpu_kind
from harness.devices.gpu_kind import GpuInfo, UnreadableError
from harness.devices.occupancy import memory_in_use, users_of
from harness.errors import HarnessError, UsageError
from harness.locks import FileLock

MEMORY_LIMIT = 30.0
"""Seconds within which the memory of ended ranks must be free again; it takes a few tenths of a second."""

MEMORY_SLACK = 32 << 20
"""Bytes by which the memory in use may vary without an allocation: memory of the driver."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Lease:
    """GPUs that this process holds until ``release``.

    ``gpus``: rank r runs on the r-th, modulo their number. ``descriptors``: file descriptors that hold the locks as
    long as they are open in any process.
    """

    def __init__(self, gpus: tuple[GpuInfo, ...], taken: tuple[FileLock, ...], report: Callable[[str], None]) -> None:
        self.gpus = gpus
        self._locks = taken
        self._before: tuple[int, ...] | None = None
        try:
            self._before = _settled(gpus)
        except UnreadableError as error:
            report(f"cannot check that the GPUs' memory is freed after the run: {error}")
        try:
            for gpu in gpus:
                if unseen := [user for user in _others(gpu) if user.name is None]:
                    report(f"GPU {gpu} is also used by {_list(unseen)}")
        except UnreadableError as error:
            report(f"cannot check for processes of other users on the GPUs: {error}")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The locks' file descriptors, for processes that are to hold the GPUs too."""
        return tuple(lock.descriptor for lock in self._locks)

    def environment(self, caller: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the variables that make a process see only these GPUs, in rank order.

        ``caller``: this process's environment.
        """
        return gpu_kind(self.gpus[0].device).visibility(self.gpus, caller)

    def release(self, limit: float = MEMORY_LIMIT) -> None:
        """Release the GPUs, once the memory in use is back to its size before the lease. Idempotent.

        Call it after the processes that used them have ended. Raises HarnessError, with pids and bytes, if the memory
        is not freed within ``limit`` seconds: the GPUs then stay locked until this process ends.
        """
        if self._locks and self._before is not None:
            for gpu, before in zip(self.gpus, self._before, strict=True):
                _await_memory(gpu, before, time.monotonic() + limit, limit)
        for lock in self._locks:
            lock.close()
        self._locks = ()


def acquire(gpus: Sequence[GpuInfo], count: int, wait: float, report: Callable[[str], None]) -> Lease:
    """Lease ``count`` of the GPUs. While fewer are free, holds none of them and tries again, for ``wait`` seconds.

    Calls ``report(line)`` when it has to wait. Raises UsageError if ``count`` is not in 1 to ``len(gpus)``, and, with
    the holders' names, when the time has passed.
    """
    if not 1 <= count <= len(gpus):
        raise UsageError(f"cannot lease {count} of {len(gpus)} GPUs: request 1 to {len(gpus)}")
    limit = time.monotonic() + wait
    paths = _paths(gpus)
    own = [path for path in paths if locks.holder(path) == os.getpid()]
    if len(gpus) - len(own) < count:
        raise HarnessError(
            f"this process already holds {len(own)} of {len(gpus)} GPUs and requests {count} more: release those first"
        )
    pause = _FIRST_PAUSE
    while (taken := _take(gpus, paths, count)) is None:
        if time.monotonic() >= limit:
            raise UsageError(
                f"no {count} of {len(gpus)} GPUs were free within {wait:g} s ({_holders(gpus, paths)}): wait for their"
                " runs to end, or choose other GPUs"
            )
        if pause == _FIRST_PAUSE:
            report(f"waiting up to {wait:g} s for {count} of {len(gpus)} GPUs ({_holders(gpus, paths)})")
        # A random pause, so that processes that wait do not collide again and again.
        time.sleep(min(random.uniform(0.5, 1.0) * pause, max(0.0, limit - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return Lease(tuple(gpus[index] for index in taken), tuple(taken.values()), report)


def holder(gpu: GpuInfo) -> int | None:
    """Return the pid of this user's process that holds the GPU (0: it cannot be read); None while it is free."""
    return locks.holder(_path(folder(), gpu))


def folder() -> Path:
    """Return the folder of this user's locks; create it if it is missing. Raises UsageError if another user made it."""
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        return locks.private_folder(locks.private_folder(home / ".cache" / "iris-harness") / "gpus")
    except (KeyError, HarnessError):  # a user without an entry or without a home that can be written
        return locks.private_folder(Path(f"/tmp/iris-harness-{os.getuid()}"))


def _paths(gpus: Sequence[GpuInfo]) -> list[Path]:
    """Return one lock path per GPU. UsageError if two have the same UUID: processes may see them in different order."""
    for uuid, count in Counter(gpu.uuid for gpu in gpus).items():
        if count > 1:
            raise UsageError(
                f"{count} of the visible GPUs have the UUID {uuid}: processes cannot distinguish partitions of one GPU,"
                " so make only one of them visible"
            )
    place = folder()
    return [_path(place, gpu) for gpu in gpus]


def _path(place: Path, gpu: GpuInfo) -> Path:
    return place / f"{re.sub(r'[^A-Za-z0-9-]', '_', gpu.uuid)}.lock"


def _take(gpus: Sequence[GpuInfo], paths: Sequence[Path], count: int) -> dict[int, FileLock] | None:
    """Take the locks of ``count`` GPUs and return them by index in ``gpus``; None, with no lock held, if fewer are
    free."""
    taken: dict[int, FileLock] = {}
    try:
        for index, (gpu, path) in enumerate(zip(gpus, paths, strict=True)):
            lock = FileLock(path)
            if lock.take():
                taken[index] = lock
                if _of_other_users(gpu):
                    taken.pop(index).release()
            if len(taken) == count:
                return taken
    except BaseException:
        _release(taken)
        raise
    _release(taken)
    return None


def _release(taken: Mapping[int, FileLock]) -> None:
    for lock in taken.values():
        lock.release()


def _holders(gpus: Sequence[GpuInfo], paths: Sequence[Path]) -> str:
    """Return the holders in words: ``pid 71 holds 0, 1; the ranks of pid 80, which has ended, hold 2``."""
    held: dict[str, list[str]] = {}
    for gpu, path in zip(gpus, paths, strict=True):
        if (pid := locks.holder(path)) is not None:
            held.setdefault(_described(pid), []).append(str(gpu.index))
        elif users := _of_other_users(gpu):
            held.setdefault(f"{_list(users)}, which is not a run of yours, uses", []).append(str(gpu.index))
    return "; ".join(f"{holder} {', '.join(indices)}" for holder, indices in held.items()) or "they were free again"


def _described(pid: int) -> str:
    if pid == 0:
        return "a process that cannot be seen from here holds"
    if pid == os.getpid():
        return f"this process, pid {pid}, holds"
    ended = not os.path.exists(f"/proc/{pid}")
    return f"the ranks of pid {pid}, which has ended, hold" if ended else f"pid {pid} holds"


@dataclass(frozen=True)
class _User:
    """Another user's process on a GPU. ``name``: its user; None if the process cannot be seen."""

    pid: int
    name: str | None


def _others(gpu: GpuInfo) -> list[_User]:
    """Return the processes on the GPU that are not this user's. Raises UnreadableError."""
    others = []
    for pid, _ in users_of(gpu):
        try:
            uid = psutil.Process(pid).uids().real
        except psutil.NoSuchProcess:
            others.append(_User(pid, None))
            continue
        if uid != os.getuid():
            others.append(_User(pid, locks.user_name(uid)))
    return others


def _of_other_users(gpu: GpuInfo) -> list[_User]:
    """Return those of ``_others`` that can be seen; none if the driver reports no processes, as ``Lease`` then
    states."""
    try:
        return [user for user in _others(gpu) if user.name is not None]
    except UnreadableError:
        return []


def _list(users: Sequence[_User]) -> str:
    return ", ".join(
        f"pid {user.pid} " + ("(not visible from here)" if user.name is None else f"of user {user.name}")
        for user in users
    )


def _settled(gpus: Sequence[GpuInfo]) -> tuple[int, ...]:
    """Return the bytes in use on each GPU once two readings agree, at most after 5 s: the memory of an earlier holder
    may still be being freed."""
    end = time.monotonic() + 5.0
    readings = tuple(map(memory_in_use, gpus))
    while time.monotonic() < end:
        time.sleep(0.05)
        again = tuple(map(memory_in_use, gpus))
        if again == readings:
            break
        readings = again
    return readings


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
        users = [f"pid {pid} ({'unknown' if size is None else f'{size:,}'} bytes)" for pid, size in users_of(gpu)]
    except UnreadableError as error:
        return f"processes that cannot be listed ({error})"
    return ", ".join(users) or "no process that can be seen from here"
