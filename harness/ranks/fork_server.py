"""Fork server: a process that has imported what ranks need, from which the processes of a session are forked.

To import PyTorch, Triton and numba takes two seconds of CPU time, as long as everything else of a group's start. A
session that may have several groups makes a ``ForkServer``: from then on the groups of this process and of its children
share the imports, see ``forking``. The process itself starts when the first group does. It imports nothing of the
library under test, has one thread, and ends with its session.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from typing import NoReturn

from harness import children, garbage, interpreters, threads
from harness.ranks import forking, keeper, network, processes, wire

_QUEUE = 128
"""Groups that may wait for the server: it imports when the first one comes."""

_REQUEST_LIMIT = 10.0
"""Seconds within which a client sends its whole request."""

_AT_START = frozenset(("sitecustomize", "usercustomize"))
"""Modules that an interpreter imports when it starts."""


class ForkServer:
    """The fork server of this process and its children, until ``close`` or the end of this process.

    ``preload``: modules, and functions as ``module:function``, that the server imports and calls like a group's keeper,
    see ``RankGroup``. ``environment``: variables that every process started from it has. ``variable``: the environment
    variable that offers the server to this process and its children.
    """

    def __init__(
        self, preload: Sequence[str], environment: Mapping[str, str], variable: str = forking.VARIABLE
    ) -> None:
        variables = {**network.inherited(os.environ), **environment}
        address = f"iris-harness-forks-{secrets.token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0{address}")
        listener.listen(_QUEUE)
        self._stop, stopped = socket.socketpair()
        self._stated = children.memory_file("circumstances")
        self._variable, self._before = variable, os.environ.get(variable)
        self._value = os.environ[variable] = forking.offer(address, self._stated, variables)
        self._thread = threads.start(_start_when_needed, (listener, stopped, list(preload), variables), "fork-server")

    def close(self) -> None:
        """End the server. Processes that it forked go on. Idempotent."""
        if self._stop.fileno() < 0:
            return
        self._stop.shutdown(socket.SHUT_RDWR)  # forks of this process may have copies of the socket
        self._stop.close()
        self._thread.join()
        os.close(self._stated)
        if os.environ.get(self._variable) == self._value:
            del os.environ[self._variable]
            if self._before is not None:
                os.environ[self._variable] = self._before


def offered(preload: Sequence[str], environment: Mapping[str, str]) -> ForkServer | None:
    """Return a new fork server; None if this process can use that of the session around it."""
    if forking.usable({**network.inherited(os.environ), **environment})[0]:
        return None
    return ForkServer(preload, environment)


def _start_when_needed(
    listener: socket.socket, stopped: socket.socket, preload: list[str], variables: Mapping[str, str]
) -> None:
    """Start the server when a client connects, and end it when ``stopped`` is at its end."""
    with stopped:
        with listener:
            if stopped.fileno() in _wait(listener.fileno(), stopped.fileno()):
                return
            code = f"import sys; sys.path[:] = {sys.path!r}; from harness.ranks import fork_server; "
            code += f"fork_server.main({listener.fileno()}, {os.getpid()}, {preload!r})"
            server = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=variables,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        # The listener is closed here, so that a client of a server that has ended is refused instead of waiting.
        _wait(stopped.fileno())
        server.kill()
        server.wait()


def _wait(*descriptors: int) -> set[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll()}


def main(listener: int, owner: int, preload: Sequence[str]) -> NoReturn:
    """Serve on the listening socket ``listener`` until the process ``owner`` ends; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        session = processes.open_pidfd(owner)
    except ProcessLookupError:
        os._exit(0)
    _Server(socket.socket(fileno=listener), session, _import(preload)).serve()
    os._exit(0)


def _import(preload: Sequence[str]) -> str:
    """Import the modules and call the functions. What fails here fails in the forked process too, which reports it.

    Returns why this process cannot be forked, or "".
    """
    running = []
    with garbage.none_so_far():
        for name in preload:
            module, _, function = name.partition(":")
            with contextlib.suppress(Exception):
                imported = importlib.import_module(module)
                if function:
                    running.append(getattr(imported, function)())
        for thread in filter(None, running):
            thread.join()
    threads = keeper.thread_count()
    return "" if threads == 1 else f"its imports started threads ({threads - 1}), which a forked process would not have"


class _Server:
    """State and main loop of the server process."""

    def __init__(self, listener: socket.socket, session: int, refusal: str) -> None:
        self._listener = listener
        self._refusal = refusal
        self._path = list(sys.path)
        self._session = session
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._poll.register(session, select.POLLIN)
        self._forked: dict[int, tuple[int, socket.socket]] = {}
        """For each pidfd its process and the connection to its client."""

    def serve(self) -> None:
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if self._session in ready:
                return
            for descriptor in ready & set(self._forked):
                self._report(descriptor)
            if self._listener.fileno() in ready:
                self._accept()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.settimeout(_REQUEST_LIMIT)
        descriptors: list[int] = []
        try:
            _check_user(client)
            target, arguments, path, environment, folder, ignored, count = wire.receive(client, wire.MESSAGE_LIMIT)
            descriptors = wire.receive_descriptors(client, count)
        except (wire.WireClosedError, ValueError, TypeError, OSError):
            client.close()
            return
        if refusal := self._refusal or _shadowed(path, folder, self._path):
            for descriptor in descriptors:
                os.close(descriptor)
            with contextlib.suppress(OSError), client:
                wire.send(client, [0, refusal])
            return
        pid = os.fork()
        if pid == 0:
            self._release(client)
            _ignore(ignored)
            interpreters.become(target, arguments, path, environment, folder, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        pidfd = processes.open_pidfd(pid)
        self._forked[pidfd] = (pid, client)
        self._poll.register(pidfd, select.POLLIN)
        with contextlib.suppress(OSError):  # a client that has ended: its keeper ends by itself
            wire.send(client, [pid, ""])
            wire.send_descriptors(client, [pidfd])

    def _report(self, descriptor: int) -> None:
        pid, client = self._forked.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError), client:
            wire.send(client, status)

    def _release(self, client: socket.socket) -> None:
        """Close what belongs to the server, in a forked process."""
        for other in (client, self._listener, *(each for _, each in self._forked.values())):
            other.close()
        for number in (self._session, *self._forked):
            os.close(number)


def _ignore(ignored: Sequence[int]) -> None:
    """Handle signals like a new interpreter, which inherited that the signals ``ignored`` are ignored."""
    for number in {*ignored, *forking.ignored_signals(), signal.SIGINT}:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)


def _shadowed(path: Sequence[str], folder: str, own: Sequence[str]) -> str:
    """Return which module of this process a new one would import from another place, or "".

    A forked process has the modules of this one, whose search path is ``own``; that of the new one is ``path``, in
    ``folder``.
    """
    loaded = {name.partition(".")[0] for name in sys.modules} | _AT_START
    importlib.invalidate_caches()
    last = max((place for place, entry in enumerate(path) if entry in own), default=len(path))
    for entry in path[:last]:
        place = os.path.join(folder, entry)
        if entry in own or not os.path.isdir(place):
            continue
        for name in {name.partition(".")[0] for name in os.listdir(place)} & loaded:
            spec, known = PathFinder.find_spec(name, [place]), getattr(sys.modules.get(name), "__file__", None)
            if spec is not None and spec.origin is not None and spec.origin != known:
                return f"a new process imports {name} from {place}, and the server has {known or 'none'}"
    return ""


def _check_user(client: socket.socket) -> None:
    """Raise PermissionError for a client of another user: every user can connect to an abstract address."""
    form = struct.Struct("3i")
    _, user, _ = form.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    if user != os.geteuid():
        raise PermissionError(f"a client of user {user}")
