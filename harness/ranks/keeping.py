"""The controller's side of the keeper process, see ``keeper``. Internal to the package."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.ranks import agent, network, output, processes, wire
from harness.ranks.errors import RankError, RankFailure

logger = logging.getLogger("harness.ranks")

END_LIMIT = 45.0
"""Seconds within which killed processes must be gone. It takes milliseconds, and some seconds where a GPU's driver has
to stop what they run; longer than the keeper's own limit, so that its answer says what is left."""


_EXIT_LIMIT = 5.0


class Keeper:
    """The keeper process, started at construction; ``end`` must be called, the keeper also ends with this process.

    ``private``: it is to enter a private network. ``not_private``: the reason why it could not; "" if it could.
    """

    def __init__(
        self,
        preload: tuple[str, ...],
        environment: Mapping[str, str],
        limit: float,
        hold: tuple[int, ...] = (),
        private: bool = True,
    ) -> None:
        self.log = processes.memory_file("keeper")
        self.outputs = output.Watch()
        self._logged = self.outputs.add(self.log)
        mine, theirs = socket.socketpair()
        code = f"import sys; sys.path[:] = {sys.path!r}; from harness.ranks import keeper; "
        code += f"keeper.main({theirs.fileno()}, {os.getpid()}, {private})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env={**network.inherited(os.environ), **environment},
            pass_fds=[theirs.fileno(), *hold],  # those to hold are just kept open, here and in the agents that it forks
            start_new_session=True,
        )
        theirs.close()
        self.connection = mine
        try:
            _, self.not_private = self._answer(limit)
            wire.send(mine, list(preload))
            kind, value = self._answer(limit)
        except BaseException:
            self.process.kill()  # nothing is below it yet, and it may be in the middle of a long import
            self.kill()
            raise
        if kind == "failed":
            self.kill()
            raise RankFailure({-1: RankError.from_plain(-1, value)})
        if value != 1:
            logger.warning(
                "modules loaded for the ranks started threads (%d), which forked ranks will not have", value - 1
            )

    def start(self, spec: agent.Spec, log: int, channel: int) -> int:
        """Start an agent; returns its pid. ``channel``: the ranks' end of the door, see ``joining``."""
        wire.send(self.connection, ["start", agent.plain(spec)])
        wire.send_descriptors(self.connection, [log, channel])
        kind, value = self._answer(END_LIMIT)
        assert kind == "started"  # sanity check
        return int(value)

    def end_group(self, ranks: tuple[int, ...], grace: float) -> None:
        """End everything that the keeper started. Raises HarnessError when something cannot be ended."""
        try:
            wire.send(self.connection, ["end", list(ranks), grace])
            kind = ""
            while kind != "ended":  # word of the agent's start or end may be under way still
                kind, left = self._answer(END_LIMIT + 2 * grace)
        except ConnectionError:
            self.kill()
            return
        except BaseException:  # a second Ctrl-C, or a keeper that does not answer: the kernel ends what is below it
            self.process.kill()
            self.kill()
            raise
        if left:
            raise HarnessError(f"processes that cannot be ended: {', '.join(map(str, left))}")

    def last_word(self) -> str:
        """How the agent or the keeper itself ended, once ``connection`` is readable without a question."""
        try:
            kind, status = self._received()
        except wire.WireClosedError:
            return f"the keeper process ended: {self.ending()}"
        if kind != "agent" or type(status) is not int:
            raise HarnessError(f"the keeper process sent {kind!r} where only the end of its agent is expected")
        return f"the elastic agent ended: {processes.describe_exit(status)}"

    def alive(self) -> bool:
        """Whether the keeper still serves."""
        return self.process.poll() is None

    def ending(self) -> str:
        """How the keeper ended, once its connection was closed: e.g. "signal 9 (SIGKILL)"."""
        try:
            status = self.process.wait(_EXIT_LIMIT)
        except subprocess.TimeoutExpired:
            return "it closed its connection and still runs"
        return processes.describe_exit(-status if status < 0 else status << 8)

    def kill(self) -> None:
        """End the keeper and, by its own doing or the kernel's, everything below it. Idempotent."""
        if self.log < 0:
            return
        self.connection.close()
        try:
            self.process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.outputs.stop()
        os.close(self.log)
        self.log = -1

    def _answer(self, limit: float) -> tuple[str, Any]:
        if not processes.wait_readable([self.connection.fileno()], limit):
            raise HarnessError(f"the keeper process did not answer within {limit:g} s\n{self._words()}")
        try:
            return self._received()
        except wire.WireClosedError as error:
            raise HarnessError(f"the keeper process ended\n{self._words()}") from error

    def _received(self) -> tuple[str, Any]:
        try:
            message = wire.receive(self.connection, wire.MESSAGE_LIMIT)
        except wire.FrameError as error:
            raise HarnessError(f"the keeper process sent {error}\n{self._words()}") from error
        if not isinstance(message, list) or len(message) != 2 or not isinstance(message[0], str):
            raise HarnessError(f"the keeper process sent what is no message of a keeper\n{self._words()}")
        return message[0], message[1]

    def _words(self) -> str:
        return self._logged.text()
