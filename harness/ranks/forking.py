"""Client of the fork server, see ``fork_server``: processes that are forked from it. Internal to the package.

A process inherits much from its parent that it cannot change later, or not back: namespaces, limits, capabilities, and
variables that modules read when they are imported. So the server is used only by a process that would pass on the same
as the server has; any other process starts a new interpreter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
from harness import interpreters
from harness.errors import HarnessError
from harness.ranks import processes, wire

logger = logging.getLogger(__package__)

VARIABLE = "IRIS_HARNESS_FORK_SERVER"
"""Environment variable with the ``offer`` of the fork server that this process and its children may use."""

_REPLY_LIMIT = 60.0
"""Seconds for the server's reply: it may be importing."""

_READ_WHEN_USED = frozenset(
    ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "PYTHONPATH", "PYTEST_CURRENT_TEST", "PYTEST_VERSION",
     "PYTEST_XDIST_AUTO_NUM_WORKERS", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT",
     "TRITON_CACHE_DIR", "XDG_STATE_HOME", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "_")
)  # fmt: skip
"""Variables that no module reads when it is imported: a forked process gets its own values of them in time. It also
gets the search path of its client, where the server looks for other modules of the same names."""

_OF_STATUS = ("Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
              "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed")  # fmt: skip
"""Fields of /proc/self/status that a child inherits, and that a forked process cannot get from its request."""


def circumstances(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what a child of this process would inherit, as JSON carries it. ``environment``: the child's variables."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
        groups = file.read()
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        "python": [sys.executable, sys.prefix],
        "harness": str(Path(harness.__file__).resolve()),
        "variables": {name: value for name, value in environment.items() if name not in _READ_WHEN_USED},
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))},
        "root": os.readlink("/proc/self/root"),
        "cgroup": groups,
        "limits": {name: list(values) for name, values in limits.items()},
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "status": {name: status.get(name, "").strip() for name in _OF_STATUS},
    }


def ignored_signals() -> list[int]:
    """Return the signals that a child of this process inherits as ignored.

    Python ignores SIGPIPE and SIGXFSZ in every process, and its children start with the default of both.
    """
    ignored = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
    return sorted(map(int, ignored - {signal.SIGPIPE, signal.SIGXFSZ}))


def offer(address: str, file: int, environment: Mapping[str, str]) -> str:
    """Return the variable's value for a server at the abstract Unix address that this process starts with these
    variables. ``file``: an open memory file of this process, where the circumstances of the server are written."""
    text = _text(environment)
    os.pwrite(file, text, 0)
    return f"{address} {os.getpid()} {file} {hashlib.sha256(text).hexdigest()}"


def usable(environment: Mapping[str, str], variable: str = VARIABLE) -> tuple[str, str]:
    """Return the address of the fork server from which a child with these variables can be forked, and "".

    If there is none, or the child would differ from a new process, return "" and the reason.
    """
    value = os.environ.get(variable, "")
    if not value:
        return "", "no process around this one has made a fork server"
    text = _text(environment)
    address, owner, file, known = value.split(" ")
    if hashlib.sha256(text).hexdigest() == known:
        return address, ""
    try:
        with open(f"/proc/{owner}/fd/{file}", "rb") as stated:
            difference = _difference(json.loads(stated.read()), json.loads(text))
    except (OSError, ValueError) as error:
        difference = f"the server's circumstances cannot be read: {error}"
    return "", f"a process forked from the server would differ from a new one: {difference}"


def _text(environment: Mapping[str, str]) -> bytes:
    return json.dumps(circumstances(environment), sort_keys=True).encode(errors="surrogatepass")


def _difference(server: Any, own: Any) -> str:
    """Return what differs between the circumstances of the server and of this process; values are left out, which may
    be secret."""
    names = []
    for name in own:
        one, other = server.get(name), own[name]
        if isinstance(one, dict) and isinstance(other, dict):
            names += [f"{name} {each}" for each in sorted({*one, *other}) if one.get(each) != other.get(each)]
        elif one != other:
            names.append(name)
    return ", ".join(names)


def start(
    target: str,
    arguments: Sequence[Any],
    *,
    output: int,
    errors: int,
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (),
    shared: bool = True,
) -> subprocess.Popen[bytes] | interpreters.Reserved | Forked:
    """Start a process as ``interpreters.start`` does: a fork of the fork server, if it is usable and ``shared``."""
    if shared and not interpreters.reserved():
        address, reason = usable(environment)
        if address:
            with contextlib.suppress(OSError):  # the server has ended
                return Forked(address, target, arguments, environment, [output, errors, *descriptors])
            reason = "the fork server has ended"
        logger.debug("%s is called in a new interpreter: %s", target, reason)
    return interpreters.start(
        target, arguments, output=output, errors=errors, environment=environment, descriptors=descriptors
    )


def run(target: str, arguments: Sequence[Any], output: int, environment: Mapping[str, str], limit: float) -> int | None:
    """Call ``target`` in another process, as ``start`` does, and return its exit status.

    ``output``: the file that receives what it prints. The process is killed after ``limit`` seconds: None.
    """
    settings: dict[str, Any] = {"output": output, "errors": output, "environment": environment}
    process = start(target, arguments, **settings)
    if isinstance(process, Forked) and not process.begun():
        process.close()
        process = start(target, arguments, **settings, shared=False)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.wait()
        if isinstance(process, Forked):
            process.close()


class Forked:
    """A process that the fork server forked, or will as soon as it is ready; used like ``subprocess.Popen``.

    The server calls ``target`` there, see ``interpreters.start``. ``descriptors``: output, errors, and those that the
    function receives.
    """

    def __init__(
        self,
        address: str,
        target: str,
        arguments: Sequence[Any],
        environment: Mapping[str, str],
        descriptors: Sequence[int],
        path: Sequence[str] | None = None,
        folder: str | None = None,
    ) -> None:
        """``path``, ``folder``: search path and working directory, by default those of this process. Raises OSError if
        the server has ended."""
        self.returncode: int | None = None
        self._process: tuple[int, int] | None = None  # its id and its pidfd
        self._server = socket.socket(socket.AF_UNIX)
        try:
            self._server.connect(f"\0{address}")
            path, folder = list(sys.path if path is None else path), os.getcwd() if folder is None else folder
            request = [target, list(arguments), path, dict(environment), folder, ignored_signals(), len(descriptors)]
            wire.send(self._server, request)
            wire.send_descriptors(self._server, list(descriptors))
        except BaseException:
            self._server.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id. Waits until it is forked; HarnessError if the server has ended before."""
        return self._forked()[0]

    def begun(self) -> bool:
        """Return whether the process was forked: not if the server ended before, or refused it. Waits for the server's
        answer."""
        try:
            self._forked()
        except HarnessError as error:
            logger.debug("%s", error)
            return False
        return True

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._forked()[1], number)

    def kill(self) -> None:
        """Kill the process; nothing happens if it has ended, or the server ended before it was forked."""
        if self.begun():
            self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Return None while the process runs, else its exit code, negative for a signal, see ``wait``."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, as ``subprocess.Popen.wait`` does. HarnessError if the server, which reports
        it, has ended."""
        if self.returncode is None:
            self.returncode = self._ended(timeout)
        return self.returncode

    def close(self) -> None:
        """Release the descriptors. The process goes on if it has not ended. Idempotent."""
        self._server.close()
        if self._process is not None:
            os.close(self._process[1])
            self._process = None

    def _forked(self) -> tuple[int, int]:
        if self._process is None:
            try:
                if not processes.wait_readable([self._server.fileno()], _REPLY_LIMIT):
                    raise HarnessError(f"the fork server did not answer within {_REPLY_LIMIT:g} s")
                pid, refusal = wire.receive(self._server, wire.MESSAGE_LIMIT)
                if refusal:
                    raise HarnessError(f"the fork server refused a process: {refusal}")
                (descriptor,) = wire.receive_descriptors(self._server, 1)
            except (wire.WireClosedError, ConnectionError) as error:
                raise HarnessError("the fork server has ended") from error
            self._process = (int(pid), descriptor)
        return self._process

    def _ended(self, timeout: float | None) -> int:
        _, descriptor = self._forked()
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while not processes.wait_readable([descriptor], min(end - time.monotonic(), 3600.0)):
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a process of the fork server", timeout or 0.0)
        try:  # the server reports a process that has ended at once
            status = wire.receive(self._server, wire.MESSAGE_LIMIT)
        except (wire.WireClosedError, ConnectionError) as error:
            raise HarnessError("its exit status is not known, since the fork server has ended") from error
        return os.waitstatus_to_exitcode(status)
