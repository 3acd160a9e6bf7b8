"""A rank's companion: a second process that runs code which must not run in the rank's own process.

A rank forks its companion before it starts threads, and the companion is then to the rank what the rank is to the
controller: it executes calls and answers with plain data. The rank calls it over a pair of connected sockets, and the
companion cannot call the rank. The companions of a group have a torch.distributed process group of their own.

A companion is in its rank's session and dies with it. A rank whose companion ends by a signal ends by the same signal,
so that the controller reports the crash of that rank.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from harness.errors import HarnessError, UsageError
from harness.ranks import processes, stacks, wire
from harness.ranks.errors import RankError
from harness.ranks.spec import Spec

QUIT_LIMIT = 5.0
"""Seconds that a companion has for its orderly end."""

_STATE_LIMIT = 1.5
"""Seconds that a companion has to describe its state."""


class CompanionFailed(Exception):  # noqa: N818 - a verdict about the code that the companion runs
    """The companion's set-up raised."""


class Companion:
    """A rank's end of its companion. Not thread-safe, except for ``describe``."""

    def __init__(self, connection: socket.socket, pid: int, state: int) -> None:
        self.pid = pid
        self._connection = connection
        self._state = state

    def set_up(self, setup: str, options: dict[str, Any]) -> None:
        """Have the companion join the process group of the companions and call ``setup``, see ``RankGroup``.

        Returns when that has ended on this rank. If it raised, raises CompanionFailed with its traceback, or a
        UsageError or HarnessError like it.
        """
        self._send([setup, options])
        kind, value = self._receive()
        if kind != "ready":
            raise _failure("the set-up of the companion", value)

    def call(self, target: str, payload: Any) -> Any:
        """Return the result of ``target`` ("module:function"), called as ``function(environment, payload)``.

        Both are plain data, see ``wire``. Raises HarnessError if the function raised or the reply is invalid.
        """
        self._send(["call", target, payload])
        kind, value = self._receive()
        if kind != "result":
            raise HarnessError(str(_failure(f"{target} in the companion", value)))
        return value

    def describe(self) -> str:
        """Dump the companion's stacks to the rank's dump, and return its state as text. For the report of a hang."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        end = time.monotonic() + _STATE_LIMIT
        start, text = 0, ""
        while time.monotonic() < end and not text.endswith(stacks.END_OF_STATE):
            time.sleep(0.005)
            text = stacks.read_from(self._state, start)
        return text.removesuffix(stacks.END_OF_STATE) or "(no state of the companion)"

    def close(self) -> None:
        """End the companion in order; it is killed after ``QUIT_LIMIT`` seconds. Idempotent."""
        if self._connection.fileno() < 0:
            return
        with contextlib.suppress(ConnectionError):
            self._connection.sendall(wire.encode(["quit"]))
        self._await_end(QUIT_LIMIT)
        self._connection.close()

    def _send(self, message: Any) -> None:
        frame = wire.encode(message)
        try:
            self._connection.sendall(frame)
        except ConnectionError:
            self._follow()

    def _receive(self) -> tuple[str, Any]:
        try:
            answer = wire.receive(self._connection)
        except wire.WireClosedError:
            self._follow()
        except wire.FrameError as error:
            raise HarnessError(f"the companion sent {error}") from error
        if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[0], str):
            raise HarnessError("the companion sent a message that is not an answer to a call")
        return answer[0], answer[1]

    def _follow(self) -> NoReturn:
        """End this process as its companion has ended."""
        status = self._await_end(QUIT_LIMIT)
        print(f"the companion {self.pid} has ended: {status}", file=sys.stderr, flush=True)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            with contextlib.suppress(OSError):  # SIGKILL has no handler
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        os._exit(os.waitstatus_to_exitcode(status) or 1)

    def _await_end(self, seconds: float) -> int:
        """Return the wait status of the companion, which is killed if it has not ended within ``seconds``."""
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return status
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                return os.waitpid(self.pid, 0)[1]
            time.sleep(0.002)


def start(rank: int, spec: Spec, serve: Callable[[socket.socket, int, Spec, int], None]) -> Companion:
    """Fork the companion of this rank, which runs ``serve(connection, rank, spec, state)``, and return its end.

    The calling process must have no other threads.
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    state = os.memfd_create(f"rank{rank}-companion-state", os.MFD_CLOEXEC)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            mine.close()
            processes.die_with_parent(parent)
            serve(theirs, rank, replace(spec, store=spec.companions_store), state)
            status = 0
        except (wire.WireClosedError, ConnectionError):
            status = 1  # the rank has ended
        except BaseException as error:  # noqa: BLE001 (it ends the process, and the report needs its reason)
            print(f"companion of rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    theirs.close()
    return Companion(mine, pid, state)


def _failure(call: str, plain: Any) -> Exception:
    """Return the exception of a companion as an exception of its rank."""
    try:
        error = RankError.from_plain(-1, plain)
    except ValueError as wrong:
        return HarnessError(f"{call} failed, and sent {wrong}")
    kind = next((kind for kind in (UsageError, HarnessError) if error.is_a(kind)), CompanionFailed)
    return kind(f"{call} raised {error.type}: {error.message}\n{error.traceback}")
