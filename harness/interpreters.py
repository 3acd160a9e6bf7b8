"""Python processes that execute one function: fresh interpreters, or forks of a prepared process in their place.

A fresh interpreter imports everything that its function needs, which takes seconds if that is torch. A process that has
imported it already, has one thread and has done nothing else may call ``reserve``: it forks processes that wait, and
the next calls of ``start`` in this process use them up. The function, its arguments, its environment and its output are
the same in both cases; only the imports are not repeated.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from harness.errors import HarnessError

_LENGTH = struct.Struct("<Q")
_PLACES = 64
"""Descriptors that a function may receive, at most."""

_POLL = 0.005


class Reserved:
    """A process that ``reserve`` forked. It has the methods of ``subprocess.Popen`` that callers of ``start`` use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                assert timeout is not None  # sanity check
                raise subprocess.TimeoutExpired("a reserved process", timeout)
            time.sleep(_POLL)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, unless it has ended. Call ``wait`` afterwards."""
        self.send_signal(signal.SIGKILL)


_waiting: list[tuple[Reserved, socket.socket]] = []


def reserve(count: int) -> None:
    """Fork ``count`` processes for later calls of ``start``. They end with this process if they are not used.

    HarnessError if this process has several threads: a fork would have only one of them.
    """
    if (threads := len(os.listdir("/proc/self/task"))) != 1:
        raise HarnessError(f"a process with {threads} threads cannot reserve processes: expected 1 thread")
    for _ in range(count):
        mine, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            mine.close()
            _serve(theirs)
        theirs.close()
        _waiting.append((Reserved(pid), mine))


def reserved() -> int:
    """Return how many processes wait for a call of ``start``."""
    return len(_waiting)


def start(
    target: str,
    arguments: Sequence[Any],
    *,
    output: int,
    errors: int,
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes] | Reserved:
    """Start a process that calls ``target`` ("module:function") as ``function(descriptors, *arguments)``.

    ``arguments`` are plain data for JSON, ``descriptors`` open files of this process that the child keeps open; the
    function receives their numbers in the child. ``output`` and ``errors`` become its descriptors 1 and 2. It has this
    process's ``sys.path``, an empty standard input and a session of its own, and ends when the function returns.
    Returns a ``subprocess.Popen`` or, in its place, a ``Reserved``.
    """
    if _waiting:
        process, connection = _waiting.pop(0)
        request = json.dumps([target, list(arguments), sys.path, dict(environment), os.getcwd()]).encode()
        with connection, contextlib.suppress(ConnectionError):  # it was killed: the caller sees that it has ended
            socket.send_fds(connection, [_LENGTH.pack(len(request))], [output, errors, *descriptors])
            connection.sendall(request)
        return process
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import call; "
    code += f"call({target!r}, {list(arguments)!r}, {list(descriptors)!r})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env=dict(environment),
        pass_fds=list(descriptors),
        start_new_session=True,
    )


def call(target: str, arguments: Sequence[Any], descriptors: Sequence[int]) -> None:
    """Import the function ``target`` and call it."""
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    function(list(descriptors), *arguments)


def _serve(connection: socket.socket) -> NoReturn:
    """Wait for a function and call it, as the body of a reserved process."""
    try:
        length, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _PLACES)
        if not length:
            os._exit(0)  # the process that reserved this one has ended, and did not need it
        with connection.makefile("rb") as request:
            target, arguments, path, environment, folder = json.loads(request.read(*_LENGTH.unpack(length)))
        connection.close()
    except BaseException:  # noqa: BLE001 - the process that reserved this one sees the exit status
        os._exit(1)
    become(target, arguments, path, environment, folder, list(descriptors))


def become(
    target: str,
    arguments: Sequence[Any],
    path: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    descriptors: Sequence[int],
) -> NoReturn:
    """Be the process that ``start`` starts, as the body of a forked process; never returns.

    ``path``, ``environment`` and ``folder`` are those of the process that called ``start``. The first two
    ``descriptors`` become 1 and 2; the function receives the others.
    """
    status = 1
    try:
        os.setsid()
        os.chdir(folder)
        for standard, descriptor in ((1, descriptors[0]), (2, descriptors[1])):
            os.dup2(descriptor, standard)
        for descriptor in set(descriptors[:2]):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        sys.argv[:] = ["-c"]
        importlib.invalidate_caches()
        call(target, arguments, descriptors[2:])
        status = 0
    except SystemExit as left:
        if not isinstance(left.code, int | None):
            print(left.code, file=sys.stderr)
        status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:  # noqa: BLE001 - a fresh interpreter would print it too
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _forget() -> None:
    """Close this process's copies of the connections to reserved processes: each ends when its own is closed."""
    for _, connection in _waiting:
        connection.close()
    _waiting.clear()


os.register_at_fork(after_in_child=_forget)
