"""Linux process control for rank groups: death with the parent, exit statuses, and the certain end of descendants.

Everything here works on ids of processes that the caller started (or their descendants), never on names.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import time
from collections.abc import Iterable

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks of a second."""
_PIDFD_GETFD = 438
"""The system call's number on all architectures."""


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when its parent thread ends. ``parent``: the pid of the expected parent.

    Ends this process at once if that parent has ended already.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo ``die_with_parent``, and what a parent has set in that way: this process notices its end by other means."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def wait_readable(descriptors: Iterable[int], seconds: float) -> set[int]:
    """Return the descriptors that are readable or at their end; waits at most ``seconds`` for the first."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that none can escape it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave_no_core() -> None:
    """Disable core files of this process and its children."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard_limit))


def refuse_tracing() -> None:
    """Refuse other processes without privileges to read or write this process's memory, or to trace it.

    Files of this process in /proc then belong to root.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def descriptor_of(pid: int, descriptor: int) -> int:
    """Return a duplicate of a file descriptor of another process. OSError if the kernel refuses it.

    The caller must be allowed to trace the process, as its parent is on most machines; containers may forbid it.
    """
    process = open_pidfd(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        number = int(libc.syscall(ctypes.c_long(_PIDFD_GETFD), process, descriptor, 0))
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"descriptor {descriptor} of process {pid}: {os.strerror(code)}")
        return number
    finally:
        os.close(process)


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when process ``pid`` ends; immune to the reuse of process ids."""
    return os.pidfd_open(pid)


def exit_status(pid: int) -> int | None:
    """Return the wait status of a process that ended and is not reaped yet (a zombie); None if it is reaped or
    alive."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Counted after "(comm)": field 0 is the state, the last field is the exit code of a zombie.
    return int(fields[-1]) if fields[0] in "ZX" else None


def cpu_ticks(pid: int) -> int | None:
    """Return the clock ticks of CPU that ``pid`` and its descendants used so far; None while the main thread of one of
    them is runnable, or waits for a disk: it may use none only because the machine gives it no core."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        below = [(child.cpu_times(), child.status()) for child in psutil.Process(pid).children(recursive=True)]
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return 0
    if fields[0] in ("R", "D") or any(state in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP) for _, state in below):
        return None
    return int(fields[11]) + int(fields[12]) + round(sum((times.user + times.system) * TICKS for times, _ in below))


def descendants() -> set[int]:
    """Return the process ids of all descendants of this process."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def end_descendants(gentle: Iterable[int] = (), grace: float = 0.0, limit: float = 30.0) -> list[str]:
    """End and reap every descendant of this process; returns those that could not be ended (empty: all are gone).

    ``gentle`` pids get SIGINT and then SIGTERM first, with ``grace`` seconds for each; all that are left get SIGKILL.
    The caller must have called ``adopt_orphans``, otherwise a grandchild could escape.
    """
    myself = psutil.Process()
    if grace > 0:
        wanted = set(gentle)
        chosen = [process for process in myself.children(recursive=True) if process.pid in wanted]
        for number in (signal.SIGINT, signal.SIGTERM):
            for process in chosen:
                _send(process, number)
            _, chosen = _wait_gone(chosen, grace)
            if not chosen:
                break
    end = time.monotonic() + limit
    while True:
        left = myself.children(recursive=True)
        for process in left:
            _send(process, signal.SIGKILL)
        if _reap_children() == 0 and not myself.children(recursive=True):
            return []
        if time.monotonic() > end:
            return [_name(process) for process in myself.children(recursive=True)]
        time.sleep(0.002)


def _send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _wait_gone(processes: list[psutil.Process], seconds: float) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Wait until the processes have ended, at most ``seconds``; returns those that have and those that have not.

    A zombie counts as ended: its parent reaps it.
    """
    end = time.monotonic() + seconds
    gone: list[psutil.Process] = []
    left = processes
    while left and time.monotonic() < end:
        gone += [process for process in left if _ended(process)]
        left = [process for process in left if process not in gone]
        if left:
            time.sleep(0.005)
    return gone, left


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _reap_children() -> int:
    """Reap every child that has ended; returns 0 if no child is left, else 1."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            return 1


def _name(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({process.status()})"
    except psutil.NoSuchProcess:
        return f"{process.pid} (gone)"


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
