"""Locks between the processes of one user: private, bounded, and a wait names the process that holds the lock.

    with locks.held(locks.in_cache(cache, "kernel.lock"), 240.0, "the compilation of kernel"):
        ...

A lock is an open file description lock (Linux, ``F_OFD_SETLK``) on a file of mode 0600 in a folder that only this user
may write. The kernel drops the lock when the last process that has the description open ends, so a holder that was
killed blocks no other process. The file holds the holder's pid and host name, for messages only. A process that
releases a lock removes its file; a killed holder leaves the file, and the next process takes it over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pwd
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from harness.errors import HarnessError, UsageError

logger = logging.getLogger("harness.locks")

WARN_AFTER = 3.0
"""Seconds of waiting after which a warning names the holder."""

_POLL = 0.01
_TRIES = 100
_FLOCK = "hhqqi"  # struct flock: type, whence, start, length, pid


@contextlib.contextmanager
def held(path: Path, limit: float, purpose: str) -> Iterator[None]:
    """Hold the lock ``path`` for the body of a ``with`` statement.

    Waits at most ``limit`` seconds for another holder, and logs a warning after WARN_AFTER seconds. ``purpose`` names
    what the lock protects, for messages. Raises HarnessError, which names the lock and its holder, when the limit has
    passed, or when the file cannot be used.
    """
    lock = FileLock(path)
    start = time.monotonic()
    warned = False
    while not lock.take():
        waited = time.monotonic() - start
        if waited >= limit:
            raise HarnessError(
                f"{purpose}: the lock {path} was not free within {limit:g} s; {describe_holder(path)} holds it: let"
                " that process end, or end it, then run again"
            )
        if waited >= WARN_AFTER and not warned:
            warned = True
            logger.warning("waiting up to %g s for %s: %s holds %s", limit, purpose, describe_holder(path), path)
        time.sleep(_POLL)
    try:
        yield
    finally:
        lock.release()


def private_folder(path: Path) -> Path:
    """Return ``path``, a folder that only this user may write; create it with mode 0700 if it is missing.

    Raises UsageError if it belongs to another user, if other users may write to it, or if it is a link; HarnessError
    if it cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        status = path.lstat()
    except OSError as error:
        raise HarnessError(f"the folder {path} for locks cannot be created: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        wrong = "is not a folder"
    elif status.st_uid != os.getuid():
        wrong = f"belongs to user {user_name(status.st_uid)}"
    elif status.st_mode & 0o022:
        wrong = f"has mode {stat.S_IMODE(status.st_mode):04o}, so other users can write to it"
    else:
        return path
    raise UsageError(
        f"{path} {wrong}; locks need a folder of user {user_name(os.getuid())} with mode 0700: have it removed, and it"
        " is created again"
    )


def in_cache(cache: Path, name: str) -> Path:
    """Return the path of the lock ``name`` for a cache folder, which several users may share: each user has its own
    lock folder in it. Raises as ``private_folder``."""
    return private_folder(cache / f"iris-harness-locks-{os.getuid()}") / name


class FileLock:
    """One lock, which this object holds from a successful ``take`` until ``release`` or ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        """The open file that holds the lock; every process that inherits it holds the lock too."""

    def take(self) -> bool:
        """Take the lock if it is free, and return whether it was. Never waits.

        Raises HarnessError if the file cannot be used.
        """
        assert self.descriptor < 0  # sanity check: not held yet
        try:
            for _ in range(_TRIES):  # each further try: a holder removed the file after we had opened it
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    if not _lock(descriptor):
                        return False
                    if _is_at(descriptor, self.path):
                        os.ftruncate(descriptor, 0)
                        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
                        self.descriptor, descriptor = descriptor, -1
                        return True
                finally:
                    if descriptor >= 0:
                        os.close(descriptor)
        except OSError as error:
            raise HarnessError(f"the lock {self.path} cannot be used: {error.strerror}") from error
        return False

    def release(self) -> None:
        """Free the lock, for processes that inherited the descriptor too. Idempotent."""
        if self.descriptor >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)  # while the lock is held, so no other process can have taken it
            fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))
            self._close()

    def close(self) -> None:
        """End this process's hold; processes that inherited the descriptor keep the lock. Idempotent."""
        if self.descriptor >= 0:
            self._close()
            with contextlib.suppress(HarnessError):  # only removes the file: this process has given up the lock already
                if self.take():
                    self.release()

    def _close(self) -> None:
        os.close(self.descriptor)
        self.descriptor = -1


def holder(path: Path) -> int | None:
    """Return the pid of the process that took the lock (0: it cannot be read); None while the lock is free."""
    owner = _holder(path)
    return owner and owner[0]


def describe_holder(path: Path) -> str:
    """Return the holder in words: ``pid 71 (python -m pytest conformance)``, ``pid 71 (stopped: ...)``, ``no
    process``."""
    owner = _holder(path)
    if owner is None:
        return "no process (it was freed just now)"
    pid, host = owner
    if pid == 0:
        return "a process that has not written its pid"
    if host != socket.gethostname():
        return f"pid {pid} of host {host}"
    try:
        process = psutil.Process(pid)
        command = " ".join(" ".join(process.cmdline()).split()) or process.name()
        command = "".join(character for character in command if character.isprintable())
        stopped = "stopped: " if process.status() == psutil.STATUS_STOPPED else ""
    except psutil.NoSuchProcess:
        return f"a child of pid {pid}, which has ended,"
    except psutil.AccessDenied:
        return f"pid {pid}"
    return f"pid {pid} ({stopped}{command[:120]})"


def user_name(uid: int) -> str:
    """Return the name of a user, or its number if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _holder(path: Path) -> tuple[int, str] | None:
    """Return the holder's pid and host name, pid 0 if it has not written them yet; None while the lock is free."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
        if struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK:
            return None
        pid, _, host = os.pread(descriptor, 512, 0).decode(errors="replace").strip().partition(" ")
    finally:
        os.close(descriptor)
    return (int(pid), host) if pid.isdecimal() else (0, "")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _flock(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether ``descriptor`` is still the file at ``path``: its last holder may have removed that one."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
