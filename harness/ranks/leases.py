"""GPUs for one rank group at a time, among all processes of this machine that use this harness.

    lease = leases.acquire(inventory.visible("cuda"), count=2, wait=300.0, tell=print)
    with RankGroup(2, ..., environment=lease.environment("cuda"), hold=lease.descriptors) as group:
        ...
    lease.release()

A GPU's lock is a file lock (see ``harness.locks``) named after the GPU's UUID, in a folder of the user's that no other
user can write: ``~/.cache/iris-harness/gpus``, with the home that the user database names, or ``/tmp/iris-harness-UID``
where that home cannot be written. Neither depends on the environment, and both outlast a login, so all runs of a user
agree. The group's processes inherit the open file: the GPUs of a controller that was killed come back exactly when its
ranks are gone. ``release`` removes the file; a killed run leaves it, some bytes long, and the next run takes it over.

Users exclude each other by what they do, not by what they claim: a lock that every user could take, any user could
keep for ever. So a GPU on which a process of another user runs is not taken, and that process is named. What remains:
between a lease and the first use of the GPU, a few seconds, two users can lease the same one. Memory that the other
user's run then holds is an error at ``release``. Processes that cannot be seen from here, such as those of another
container, are reported and do not count.
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
from harness.devices.inventory import MASKS, GpuInfo, mask_entries
from harness.devices.occupancy import UnreadableError, memory_in_use, users_of
from harness.errors import HarnessError, UsageError
from harness.locks import FileLock

MEMORY_LIMIT = 30.0
"""Seconds that the memory of ended ranks has to be free again; it takes a few tenths."""

MEMORY_SLACK = 32 << 20
"""Bytes by which the memory in use may differ without anyone having allocated anything: the driver's own."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Lease:
    """GPUs that are this process's until ``release``. ``gpus``: rank r is on the r-th, modulo how many there are;
    ``descriptors``: keep the locks while they are open in any process."""

    def __init__(self, gpus: tuple[GpuInfo, ...], taken: tuple[FileLock, ...], tell: Callable[[str], None]) -> None:
        self.gpus = gpus
        self._locks = taken
        self._before: tuple[int, ...] | None = None
        try:
            self._before = _settled(gpus)
        except UnreadableError as error:
            tell(f"whether the memory of GPUs comes back cannot be checked: {error}")
        try:
            for gpu in gpus:
                if unseen := [user for user in _others(gpu) if user.name is None]:
                    tell(f"GPU {gpu} is also used by {_list(unseen)}")
        except UnreadableError as error:
            tell(f"whether other users use the GPUs cannot be checked: {error}")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The locks' file descriptors, for processes that shall hold the GPUs too."""
        return tuple(lock.descriptor for lock in self._locks)

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
    paths = _paths(gpus)
    own = [path for path in paths if locks.holder(path) == os.getpid()]
    if len(gpus) - len(own) < count:
        raise HarnessError(f"{len(own)} of {len(gpus)} GPUs are held by this process itself, and {count} are asked for")
    pause = _FIRST_PAUSE
    while (taken := _take(gpus, paths, count)) is None:
        if time.monotonic() >= limit:
            raise UsageError(
                f"no {count} of {len(gpus)} GPUs were free within {wait:g} s ({_holders(gpus, paths)}): wait for their"
                " runs to end, or choose other GPUs"
            )
        if pause == _FIRST_PAUSE:
            tell(f"waiting up to {wait:g} s for {count} of {len(gpus)} GPUs ({_holders(gpus, paths)})")
        # At random, so that those who wait do not meet again and again.
        time.sleep(min(random.uniform(0.5, 1.0) * pause, max(0.0, limit - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return Lease(tuple(gpus[index] for index in taken), tuple(taken.values()), tell)


def holder(gpu: GpuInfo) -> int | None:
    """The pid of the process of this user that took the GPU (0: it cannot be read); None while it is free."""
    return locks.holder(_path(folder(), gpu))


def folder() -> Path:
    """The folder of this user's locks, which is created. Raises UsageError where another user has made it."""
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        return locks.private_folder(locks.private_folder(home / ".cache" / "iris-harness") / "gpus")
    except (KeyError, HarnessError):  # a user without an entry or without a home that can be written
        return locks.private_folder(Path(f"/tmp/iris-harness-{os.getuid()}"))


def _paths(gpus: Sequence[GpuInfo]) -> list[Path]:
    """One lock per GPU. UsageError where two have one UUID: another process may see them in another order."""
    for uuid, count in Counter(gpu.uuid for gpu in gpus).items():
        if count > 1:
            raise UsageError(
                f"{count} of the visible GPUs have the UUID {uuid}: partitions of one GPU cannot be told apart between"
                " processes, so choose one of them by the visible devices"
            )
    place = folder()
    return [_path(place, gpu) for gpu in gpus]


def _path(place: Path, gpu: GpuInfo) -> Path:
    return place / f"{re.sub(r'[^A-Za-z0-9-]', '_', gpu.uuid)}.lock"


def _take(gpus: Sequence[GpuInfo], paths: Sequence[Path], count: int) -> dict[int, FileLock] | None:
    """Locks of ``count`` GPUs, by their places in the list; None, and none of them, when fewer are free."""
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
    """As in ``pid 71 holds 0, 1; the ranks of pid 80, which has ended, hold 2``."""
    held: dict[str, list[str]] = {}
    for gpu, path in zip(gpus, paths, strict=True):
        if (pid := locks.holder(path)) is not None:
            held.setdefault(_who(pid), []).append(str(gpu.index))
        elif users := _of_other_users(gpu):
            held.setdefault(f"{_list(users)}, which is no run of yours, uses", []).append(str(gpu.index))
    return "; ".join(f"{who} {', '.join(indices)}" for who, indices in held.items()) or "they were free again"


def _who(pid: int) -> str:
    if pid == 0:
        return "a process that cannot be seen from here holds"
    if pid == os.getpid():
        return f"this process, pid {pid}, holds"
    ended = not os.path.exists(f"/proc/{pid}")
    return f"the ranks of pid {pid}, which has ended, hold" if ended else f"pid {pid} holds"


@dataclass(frozen=True)
class _User:
    """A process on a GPU that is not this user's; ``name``: its user, None where the process cannot be seen."""

    pid: int
    name: str | None


def _others(gpu: GpuInfo) -> list[_User]:
    """Processes on the GPU that are not this user's. Raises UnreadableError."""
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
    """Of these, those that can be seen; none where the driver does not tell, which ``Lease`` reports."""
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
