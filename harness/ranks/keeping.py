"""Controller's side of the keeper process, see ``keeper``. Internal to the package."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import weakref
from collections.abc import Mapping
from typing import Any, TypeAlias

from harness import children, interpreters
from harness.errors import HarnessError
from harness.ranks import forking, network, output, processes, wire
from harness.ranks.errors import RankError, RankFailure
from harness.ranks.spec import Spec, plain

logger = logging.getLogger(__package__)

END_LIMIT = 45.0
"""Seconds within which killed processes must be gone. It takes milliseconds, and some seconds if a GPU's driver has to
stop their kernels. Longer than the keeper's own limit, so that the keeper can answer which processes are left."""

_EXIT_LIMIT = 5.0

_open: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _forget_keepers() -> None:
    """Close this process's copies of the connections: a keeper ends when no process holds the other end of its own."""
    for keeper in _open:
        keeper.connection.close()


os.register_at_fork(after_in_child=_forget_keepers)


_Process: TypeAlias = "subprocess.Popen[bytes] | interpreters.Reserved | forking.Forked"


class Keeper:
    """The keeper process, started at construction. Call ``kill`` to end it; it also ends with this process.

    It imports the modules ``preload`` while this process goes on. Call ``wait_ready`` before anything else.

    ``private``: enter a private network. ``not_private``: the reason why that failed; "" if it did not; known once the
    keeper is ``ready``.
    """

    def __init__(
        self,
        preload: tuple[str, ...],
        environment: Mapping[str, str],
        hold: tuple[int, ...] = (),
        private: bool = True,
    ) -> None:
        self.log = children.memory_file("keeper")
        self.outputs = output.Watch()
        self._logged = self.outputs.add(self.log)
        self._preload = list(preload)
        self._environment = {**network.inherited(os.environ), **environment}
        self._hold = hold
        self._private = private
        self.process, self.connection = self._started()
        self.not_private = ""
        self.ready = False
        _open.add(self)

    def _started(self, shared: bool = True) -> tuple[_Process, socket.socket]:
        """Start the process, from the fork server if it is usable and ``shared``. Returns this process's end of the
        connection too."""
        mine, theirs = socket.socketpair()
        process = forking.start(
            "harness.ranks.keeper:main",
            [os.getpid(), self._private],
            output=self.log,
            errors=self.log,
            environment=self._environment,
            descriptors=[theirs.fileno(), *self._hold],  # ``hold`` is only kept open, in the keeper and in its agents
            shared=shared,
        )
        theirs.close()
        with contextlib.suppress(ConnectionError):  # it has ended already: ``wait_ready`` reports that
            wire.send(mine, self._preload)
        return process, mine

    def wait_ready(self, limit: float) -> None:
        """Wait until the modules are imported; ``limit``: seconds for each of two answers. If one of them cannot be
        imported, or the keeper does not answer, raises RankFailure or HarnessError, and the keeper is gone."""
        try:
            if isinstance(self.process, forking.Forked) and not self.process.begun():
                self.connection.close()
                self.process.close()
                self.process, self.connection = self._started(shared=False)
            _, self.not_private = self._answer(limit)
            kind, value = self._answer(limit)
        except BaseException:
            self.kill()
            raise
        if kind == "failed":
            self.kill()
            raise RankFailure({-1: RankError.from_plain(-1, value)})
        if value != 1:
            logger.warning(
                "modules loaded for the ranks started threads (%d), which forked ranks will not have", value - 1
            )
        self.ready = True

    def start(self, spec: Spec, log: int, channel: int) -> int:
        """Start an agent and return its pid. ``channel``: the ranks' end of the door, see ``joining``."""
        wire.send(self.connection, ["start", plain(spec)])
        wire.send_descriptors(self.connection, [log, channel])
        kind, value = self._answer(END_LIMIT)
        assert kind == "started"  # sanity check
        return int(value)

    def end_group(self, ranks: tuple[int, ...], grace: float) -> None:
        """End every process that the keeper started. Raises HarnessError that names those that cannot be ended."""
        try:
            wire.send(self.connection, ["end", list(ranks), grace])
            kind = ""
            while kind != "ended":  # a message about the agent's start or end may come first
                kind, left = self._answer(END_LIMIT + 2 * grace)
        except ConnectionError:
            self.kill()
            return
        except BaseException:  # a second Ctrl-C, or no answer: the kernel then ends the processes below the keeper
            self.process.kill()
            self.kill()
            raise
        if left:
            raise HarnessError(
                f"processes {', '.join(map(str, left))} were killed and still run: end them, or restart the machine"
            )

    def last_word(self) -> str:
        """Return how the agent or the keeper ended. Call it when ``connection`` is readable outside an exchange."""
        try:
            kind, status = self._received()
        except wire.WireClosedError:
            return f"the keeper process ended: {self.ending()}"
        if kind != "agent" or type(status) is not int:
            raise HarnessError(f"the keeper process sent {kind!r} where only the end of its agent is expected")
        return f"the elastic agent ended: {children.describe_exit(status)}"

    def alive(self) -> bool:
        """Return whether the keeper process still runs."""
        return self.process.poll() is None

    def ending(self) -> str:
        """Return how the keeper ended, e.g. "signal 9 (SIGKILL)". Call it after its connection was closed."""
        try:
            status = self.process.wait(_EXIT_LIMIT)
        except subprocess.TimeoutExpired:
            return "it closed its connection and still runs"
        except HarnessError as error:
            return str(error)
        return children.describe_exit(-status if status < 0 else status << 8)

    def kill(self) -> None:
        """End the keeper; it, or the kernel, ends every process below it. Idempotent."""
        if self.log < 0:
            return
        if not self.ready:
            self.process.kill()  # it has no children yet, and may be in the middle of a long import
        self.connection.close()
        with contextlib.suppress(HarnessError):  # its exit status is not known
            try:
                self.process.wait(END_LIMIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if isinstance(self.process, forking.Forked):
            self.process.close()
        self.outputs.stop()
        os.close(self.log)
        self.log = -1

    def _answer(self, limit: float) -> tuple[str, Any]:
        if not processes.wait_readable([self.connection.fileno()], limit):
            raise HarnessError(f"the keeper process did not answer within {limit:g} s\n{self._log_text()}")
        try:
            return self._received()
        except wire.WireClosedError as error:
            raise HarnessError(
                f"the keeper process ended, which starts and ends the ranks; its output:\n{self._log_text()}"
            ) from error

    def _received(self) -> tuple[str, Any]:
        try:
            message = wire.receive(self.connection, wire.MESSAGE_LIMIT)
        except wire.FrameError as error:
            raise HarnessError(
                f"the keeper process, which starts and ends the ranks, sent {error}; its output:\n{self._log_text()}"
            ) from error
        if not isinstance(message, list) or len(message) != 2 or not isinstance(message[0], str):
            raise HarnessError(
                f"the keeper process, which starts and ends the ranks, sent an invalid message; its output:\n"
                f"{self._log_text()}"
            )
        return message[0], message[1]

    def _log_text(self) -> str:
        return self._logged.text()
