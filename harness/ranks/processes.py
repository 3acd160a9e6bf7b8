"""Linux process facts that the rank group stands on: who dies with whom, how a process ended, that it is gone.

Everything here works on process ids that the caller started itself (or their descendants), never on names.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import time
from collections.abc import Iterable

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when its parent thread ends; ``parent`` is the pid it was started by.

    Ends the process at once when that parent is gone already, which closes the race with its death.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wait_readable(descriptors: Iterable[int], seconds: float) -> set[int]:
    """Those of the descriptors that are readable or at their end, waiting at most ``seconds`` for the first."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that none can leave its sight."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave_no_core() -> None:
    """Have this process and its children leave no core file when they crash."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def memory_file(name: str) -> int:
    """A file in memory only, opened for appending, so that writers in several processes do not overwrite each other."""
    descriptor = os.memfd_create(f"iris-harness-{name}")
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return descriptor


def open_pidfd(pid: int) -> int:
    """A descriptor that becomes readable when process ``pid`` ends; immune to the reuse of process ids."""
    return os.pidfd_open(pid)


def exit_status(pid: int) -> int | None:
    """The wait status of a process that ended and is not reaped yet (a zombie); None where it is reaped or alive."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Counted after "(comm)": field 0 is the state, the last field is the exit code of a zombie.
    return int(fields[-1]) if fields[0] in "ZX" else None


def cpu_ticks(pid: int) -> int | None:
    """Clock ticks of CPU that ``pid`` and its descendants used so far; None while its main thread wants to run."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        below = [child.cpu_times() for child in psutil.Process(pid).children(recursive=True)]
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return 0
    if fields[0] == "R":
        return None
    per_second = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) + int(fields[12]) + round(sum((times.user + times.system) * per_second for times in below))


def describe_exit(status: int) -> str:
    """A wait status in words: ``signal 6 (SIGABRT)``, ``exit status 3``."""
    if os.WIFSIGNALED(status):
        return describe_signal(os.WTERMSIG(status))
    return f"exit status {os.WEXITSTATUS(status)}"


def describe_signal(number: int) -> str:
    """A signal in words: ``signal 11 (SIGSEGV)``."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {number}"


def descendants() -> set[int]:
    """The process ids of everything below this process."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def end_descendants(gentle: Iterable[int] = (), grace: float = 0.0, limit: float = 30.0) -> list[str]:
    """End every descendant of this process and reap them all; returns what could not be ended (empty: all gone).

    ``gentle`` pids get SIGINT and then SIGTERM first, with ``grace`` seconds for each; everything left gets SIGKILL.
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
    """Bounded wait until the processes ended; a zombie counts as ended, its parent reaps it."""
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
    """Reap every child that ended; returns how many children are left (0 or 1: some)."""
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
