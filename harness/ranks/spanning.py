"""A rank group on several nodes: machines, or separate parts of this one.

Each node has a process (``node``) that runs its ranks; the ranks of all of them are one world of torch.distributed. The
controller of this package calls the nodes over one connection each, and never the ranks.

Trust: what the ranks and their agents send to each other is not authenticated (torch's store, gloo and NCCL have no
such thing), so every process that can connect to the nodes' ports can disturb a run, and read what it sends. Use a
network to which only those have access who may do that. A connection between a node and the controller, which can call
any function there, begins with both proving that they have the same key, see ``meeting``.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.ranks import failures, wire
from harness.ranks.errors import CaseFailed
from harness.ranks.generation import fresh_run_id

logger = logging.getLogger(__package__)

END_LIMIT = 90.0
"""Seconds that a node has to answer after its ranks had to end: they are killed, and on GPUs that takes some time."""

_LAP = 1.0


@dataclass
class Link:
    """The controller's connection to a node. ``address``: the node's in the rendezvous; "" for its host name."""

    name: str
    connection: socket.socket
    address: str = ""
    compiling: float = 0.0
    inbox: wire.Inbox = field(init=False)

    def __post_init__(self) -> None:
        self.connection.setblocking(False)
        self.inbox = wire.Inbox(self.connection)


class SpanningGroup:
    """A group of ``world_size`` ranks, as many on each node of ``links``; it is used as a ``RankGroup`` is.

    ``host``: the address by which all nodes reach the first one, which hosts their store at ``port`` (0: any free one).
    The numbers of the ranks follow from the rendezvous: those of one node are consecutive. ``close`` also closes the
    connections. ``gpus``: the device and the number of its GPUs that each node leases for its ranks.

    A call fails on all nodes if it fails on one: the ranks of the others have ``failure_grace`` seconds to answer, and
    the next call runs on fresh processes everywhere. Time in which ranks of any node compile extends the deadline of
    all. Not thread-safe.
    """

    def __init__(
        self,
        world_size: int,
        setup: str | None,
        options: Mapping[str, Any],
        *,
        links: Sequence[Link],
        host: str,
        port: int = 0,
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 120.0,
        failure_grace: float = 2.0,
        gpus: tuple[str, int] | None = None,
    ) -> None:
        if world_size % len(links):
            raise UsageError(f"{world_size} ranks cannot be divided evenly among {len(links)} nodes")
        self.world_size = world_size
        self.generation = 0
        self.compile_seconds = 0.0
        self.pids: tuple[int, ...] = ()
        self._links = list(links)
        self._host = host
        self._start_timeout = start_timeout
        self._grace = failure_grace
        self._endpoint = ""
        self._ranks: list[Sequence[int]] = []
        self._broken: Exception | None = None
        self._failing: list[str] = []
        self._busy = False
        self._port = port
        self._fields = {
            "world_size": world_size // len(links),
            "setup": setup,
            "options": dict(options),
            "preload": list(preload),
            "environment": dict(environment or {}),
            "start_timeout": start_timeout,
            "failure_grace": failure_grace,
            "gpus": None if gpus is None else list(gpus),
        }

    @property
    def broken(self) -> bool:
        """True if the group could not be started: every call raises the same exception again."""
        return self._broken is not None

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each node, in the order of the nodes; empty before the first start."""
        return tuple(tuple(ranks) for ranks in self._ranks)

    def call(self, target: str, payload: Any = None, deadline: float = 30.0) -> list[Any]:
        """Run ``target`` on every rank, and return the results in rank order; see ``RankGroup.call``."""
        message = ["call", target, payload, 2 * deadline + END_LIMIT]  # this process ends a call at its deadline
        try:
            for _ in range(2):
                self._started()
                answers = self._exchange(message, deadline)
                gone = [name for name, answer in answers.items() if answer[:2] == ["failed", failures.GONE]]
                if not gone:
                    return self._results(answers, deadline)
                logger.warning("ranks of %s ended between calls; starting a fresh group", ", ".join(gone))
                self.renew()
        except CaseFailed:
            self.renew()
            raise
        except BaseException:
            self.close()  # for any other exception, Ctrl-C included: no rank may be left in the middle of a call
            raise
        raise HarnessError(f"the ranks of {', '.join(gone)} end as soon as they have started")

    def start(self) -> None:
        """Start the processes now instead of at the first call."""
        self._started()

    def renew(self) -> None:
        """End the processes on all nodes: the next call runs on fresh ones."""
        if self._ranks:
            self._ranks = []
            self._exchange(["renew"], END_LIMIT)

    def close(self) -> None:
        """End the ranks and the nodes: in order if they are idle, else by closing the connections. Idempotent."""
        links, self._links = self._links, []
        if self._busy:
            for link in links:
                link.connection.close()
            return
        for link in links:
            try:
                wire.send_within(link.connection, wire.encode(["quit"]), time.monotonic() + _LAP)
            except ConnectionError:
                continue  # it has ended
        limit = time.monotonic() + END_LIMIT
        for link in links:
            while time.monotonic() < limit:
                select.select([link.connection], [], [], max(0.0, limit - time.monotonic()))
                try:
                    if ["quitted"] in link.inbox.take():
                        break
                except (wire.WireClosedError, wire.FrameError):
                    break
            link.connection.close()

    def _started(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._links:
            raise UsageError("this rank group was closed: make a new one for further calls")
        if self._ranks:
            return
        try:
            self._start()
        except Exception as error:
            self._broken = error
            raise

    def _start(self) -> None:
        if not self._endpoint:
            opened = self._checked(self._exchange(["open", self._fields], self._start_timeout))
            _check_equal({name: answer[1] for name, answer in opened.items()})
            first = self._links[:1]
            stored = self._checked(self._exchange(["store", self._host, self._port], self._start_timeout, first))
            self._endpoint = f"{self._host}:{next(iter(stored.values()))[1]}"
        fields = {"nodes": len(self._links), "run_id": fresh_run_id(), "endpoint": self._endpoint}
        self.generation += 1
        answers = self._exchange(
            {link.name: ["start", {**fields, "address": link.address}] for link in self._links}, self._start_timeout
        )
        self._ranks = [answer[1] for answer in self._checked(answers).values()]
        ranks_of_all = sorted(rank for ranks in self._ranks for rank in ranks)
        if ranks_of_all != list(range(self.world_size)):
            raise HarnessError(f"the rendezvous of the nodes made the ranks {self._ranks}")

    def _checked(self, answers: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
        if failed := self._failures(answers):
            raise failures.joined(failed, self._start_timeout)
        return answers

    def _results(self, answers: Mapping[str, list[Any]], deadline: float) -> list[Any]:
        if failed := self._failures(answers):
            raise failures.joined(failed, deadline)
        results: dict[int, Any] = {}
        for ranks, answer in zip(self._ranks, answers.values(), strict=True):
            results.update(zip(ranks, answer[1], strict=True))
        return [results[rank] for rank in range(self.world_size)]

    def _failures(self, answers: Mapping[str, list[Any]]) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """Return the failures of the nodes, in the order in which their ranks failed."""
        order = [*self._failing, *answers]
        failed = {name: (answer[1], answer[2]) for name, answer in answers.items() if answer[0] == "failed"}
        return {name: failed[name] for name in sorted(failed, key=order.index)}

    def _exchange(
        self, message: list[Any] | Mapping[str, list[Any]], seconds: float, links: Sequence[Link] | None = None
    ) -> dict[str, list[Any]]:
        """Send a message to each node, and return each one's answer, in the order of the nodes.

        After ``seconds``, and time in which ranks compile, or ``failure_grace`` after one node has failed, the ranks of
        the others end what they do. Raises HarnessError if a node has ended or does not answer even then.
        """
        links = self._links if links is None else links
        begun = time.monotonic()
        self._busy = True
        self._failing = []
        for link in links:
            link.compiling = 0.0
            self._send(link, message[link.name] if isinstance(message, Mapping) else message)
        answers: dict[str, list[Any]] = {}
        hurried: float | None = None
        while len(answers) < len(links):
            self.compile_seconds = max(link.compiling for link in links)
            failed = any(answer[0] == "failed" for answer in answers.values())
            left = begun + seconds + self.compile_seconds - time.monotonic()
            waiting = [link for link in links if link.name not in answers]
            if hurried is None and (failed or left <= 0):
                hurried = time.monotonic() + END_LIMIT
                for link in waiting:
                    self._send(link, ["hurry", self._grace if failed else 0.0])
            if hurried is not None and time.monotonic() > hurried:
                raise HarnessError(f"{waiting[0].name} did not answer within {seconds + END_LIMIT:g} s")
            readable, _, _ = select.select([link.connection for link in waiting], [], [], min(max(left, 0.05), _LAP))
            for link in waiting:
                if link.connection in readable:
                    self._take(link, answers)
        self._busy = False
        return {link.name: answers[link.name] for link in links}

    def _take(self, link: Link, answers: dict[str, list[Any]]) -> None:
        try:
            messages = link.inbox.take()
        except wire.WireClosedError as error:
            raise HarnessError(f"{link.name} has ended: its connection is closed") from error
        except wire.FrameError as error:
            raise HarnessError(f"{link.name} sent {error}") from error
        for each in messages:
            if not isinstance(each, list) or not each or not isinstance(each[0], str):
                raise HarnessError(f"{link.name} sent a message that is not an answer")
            if each[0] == "compiling":
                link.compiling = float(each[1])
            elif each[0] == "failing":
                self._failing.append(link.name)
            else:
                answers[link.name] = each

    def _send(self, link: Link, message: list[Any]) -> None:
        try:
            sent = wire.send_within(link.connection, wire.encode(message), time.monotonic() + END_LIMIT)
        except ConnectionError as error:
            raise HarnessError(f"{link.name} has ended: its connection is closed") from error
        if not sent:
            raise HarnessError(f"{link.name} does not read from its connection")

    def __enter__(self) -> SpanningGroup:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_equal(versions: Mapping[str, Mapping[str, str]]) -> None:
    """Raise UsageError if nodes run different versions."""
    first, *others = versions
    for other in others:
        for name in versions[first]:
            here, there = versions[first][name], versions[other].get(name)
            if name != "host" and here != there:
                raise UsageError(f"{first} has {name} {here}, {other} has {there}: install the same on all nodes")
