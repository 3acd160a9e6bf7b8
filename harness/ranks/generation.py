"""One generation of a rank group: the ranks from their start to their confirmed end. Internal to the package."""

from __future__ import annotations

import logging
import math
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from harness import children, compiling, machine, standstill
from harness.errors import HarnessError, UsageError
from harness.ranks import joining, processes, stacks, wire
from harness.ranks.errors import CaseFailed, RankCrash, RankCutOff, RankError, RankFailure, RankHang
from harness.ranks.idle import Idle
from harness.ranks.keeping import END_LIMIT, Keeper
from harness.ranks.output import Output
from harness.ranks.spec import Spec
from harness.ranks.starved import Starved
from harness.text import clipped

logger = logging.getLogger(__package__)

# Ranks with GPUs take seconds to leave: they destroy communicators, and the driver frees their contexts one by one.
_QUIT_LIMIT = 10.0
# After the first death, how long to wait for further deaths and answers: ranks that crash together are all reported.
_CRASH_WINDOW = 0.1
# After one rank raised, how long the others must be idle for the group to stop waiting before the grace is over.
_IDLE_WINDOW = 0.3
_AGENT_WINDOW = 2.0
_REAPED = "ended (reaped by its agent)"
_KILLED = children.describe_exit(signal.SIGKILL)
_TERMINATED = children.describe_exit(signal.SIGTERM)
_ANSWERS = ("result", "error", "poisoned", "ready", "failed")
_REASON_LIMIT = 500
# Seconds of compilation that one call may have in addition to its deadline, and how often it is read. compile_once
# already bounds a single compilation: by COMPILE_LIMIT, and by twice that for the wait for another process.
_COMPILE_LIMIT = 600.0
_COMPILE_LAP = 0.25


@dataclass
class _Member:
    """One rank's process as the controller sees it."""

    rank: int
    pid: int
    pidfd: int
    connection: socket.socket
    inbox: wire.Inbox
    output: int
    dump: int
    state: int
    compiling: int
    standstill: int
    written: Output

    def tail(self) -> str:
        return stacks.trim(self.written.text())

    def close(self) -> None:
        self.connection.close()
        for descriptor in (self.pidfd, self.output, self.dump, self.state, self.compiling, self.standstill):
            os.close(descriptor)


@dataclass
class _Round:
    """The answers of one exchange with all ranks."""

    waiting: set[int]
    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, RankError] = field(default_factory=dict)
    exits: dict[int, str] = field(default_factory=dict)
    poisoned: set[int] = field(default_factory=set)
    cut_off: dict[int, str] = field(default_factory=dict)
    standstill: str | None = None


@dataclass(frozen=True)
class Span:
    """The place of a generation in a group that has ranks on several nodes; see ``Spec`` for the fields."""

    nodes: int
    run_id: str
    endpoint: str
    address: str = ""


class Cutoff:
    """State that a part of a group on several nodes shares with its node.

    ``until``: the time (monotonic) at which a start or a call in progress ends, whatever its own limit; another thread
    may bring it forward. ``on_failure`` is called once a rank has failed, before the generation is ended for that:
    then ranks of other nodes fail too.
    """

    def __init__(self) -> None:
        self.until = math.inf
        self.on_failure: Callable[[], None] = lambda: None


def fresh_run_id() -> str:
    """Return a name that no other generation has."""
    return f"iris-harness-{secrets.token_hex(8)}"


class Generation:
    """The running ranks of a group. Once ``ended`` is true it cannot be used any more.

    ``ranks``: the rank of each process, which in a group on several nodes differs from its place in this generation;
    everything else counts places. ``cutoff``: see ``Cutoff``.
    """

    def __init__(
        self,
        keeper: Keeper,
        world_size: int,
        setup: str | None,
        options: Mapping[str, Any],
        *,
        start: str,
        network: str,
        environment: Mapping[str, str],
        start_timeout: float,
        failure_grace: float,
        end_grace: float,
        hold: tuple[int, ...] = (),
        companion: bool = False,
        span: Span | None = None,
        cutoff: Cutoff | None = None,
    ) -> None:
        self.ended = False
        self.ranks: tuple[int, ...] = ()
        self._cutoff = cutoff or Cutoff()
        self._orphaned = ""
        self._keeper = keeper
        self._failure_grace = failure_grace
        self._end_grace = end_grace
        self._hold = hold
        # Another node's ranks may change memory too.
        self._is_whole = span is None
        self._on_gpus = _serves_gpus(str(options.get("backend")))
        self._members: dict[int, _Member] = {}
        self._poll = select.epoll()
        self._sources: dict[int, tuple[str, int]] = {}
        self._log = children.memory_file("agent")
        self._logged = keeper.outputs.add(self._log)
        self._door = joining.Door(world_size)
        self._meter = compiling.Meter((), limit=_COMPILE_LIMIT)  # of no process until the ranks have joined
        self._observer = standstill.Observer({})
        self._starved = Starved(())
        limit = time.monotonic() + start_timeout
        spec = Spec(
            world_size=world_size,
            start=start,
            run_id=span.run_id if span else fresh_run_id(),
            network=network,
            controller=os.getpid(),
            environment=dict(environment),
            start_timeout=start_timeout,
            held=len(hold),
            companion=companion,
            nodes=span.nodes if span else 1,
            endpoint=span.endpoint if span else "",
            address=span.address if span else "",
        )
        try:
            self._agent = keeper.start(spec, self._log, self._door.channel.fileno())
            self._door.channel.close()
            self._accept(limit, start_timeout)
            self._set_up(wire.encode([setup, dict(options)]), limit, start_timeout)
        except BaseException:
            self.end()
            raise

    @property
    def compile_seconds(self) -> float:
        """Seconds of the last call in which at least one rank compiled."""
        return self._meter.seconds

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(member.pid for _, member in sorted(self._members.items()))

    def call(self, frame: bytes, deadline: float) -> list[Any]:
        """Send ``frame`` to every rank and return the results in rank order; ends the generation if it has to."""
        self._meter.reset()
        self._observer.reset()
        self._starved.begin(limit=deadline)
        limit = time.monotonic() + deadline
        for member in self._members.values():
            member.written.mark()
        answers = _Round(set(self._members))
        self._send(frame, limit, answers)
        try:
            self._gather(answers, limit)
            return self._judged(answers, deadline)
        except CaseFailed as failure:
            failure.cut_output = self._cut_output()
            raise

    def _judged(self, answers: _Round, deadline: float) -> list[Any]:
        """Return the results of a call, or raise the CaseFailed for its answers; ends the generation if it has to."""
        if answers.cut_off:
            self._cut_off(answers)
        if answers.exits and not answers.poisoned:
            self._crashed(answers)
        if answers.waiting and not answers.errors:
            self._meter.check()
            texts = self._stacks(self._members)
            output = self._output()
            self.end()
            waiting = tuple(sorted(answers.waiting))
            raise RankHang(texts, deadline, waiting, output, answers.results, answers.standstill)
        if answers.errors:
            texts = self._stacks(answers.waiting)
            output = self._output()
            if answers.waiting or answers.poisoned:
                self.end()
            raise RankFailure(answers.errors, texts, output, tuple(sorted(answers.poisoned)))
        for rank, count in self._cut_output().items():
            logger.warning("rank %d wrote too much output in one call: %d bytes of it were discarded", rank, count)
        return [answers.results[rank] for rank in sorted(answers.results)]

    def lost(self) -> dict[int, str]:
        """Return the ranks that ended or sent anything since the last call (-1: the agent), each with what it did.
        Does not wait."""
        answers = _Round(set())
        for descriptor, _ in self._poll.poll(0):
            self._take(descriptor, answers)
        strange = {rank: f"sent {reason}" for rank, reason in answers.cut_off.items()}
        return strange | answers.exits | ({-1: self._orphaned} if self._orphaned else {})

    def quit(self) -> None:
        """End the ranks in order: they close their environment and exit; after a limit they are killed."""
        frame = wire.encode(["quit"])
        answers = _Round(set(self._members))
        limit = time.monotonic() + _QUIT_LIMIT
        self._send(frame, limit, answers)
        while len(answers.exits) < len(self._members) and time.monotonic() < limit:
            for descriptor, _ in self._poll.poll(max(0.0, limit - time.monotonic())):
                self._take(descriptor, answers)
        for rank, how in sorted(answers.exits.items()):
            if how != children.describe_exit(0):
                logger.warning("rank %d did not end in order: %s\n%s", rank, how, self._members[rank].tail())
        self.end()

    def end(self) -> None:
        """Kill whatever is left, confirm that it is gone, release everything. Idempotent."""
        if self.ended:
            return
        self.ended = True
        try:
            alive = any(_running(member.pidfd) for member in self._members.values())
            self._keeper.end_group(self.pids, self._end_grace if alive else 0.0)
            left = self._await_ends()
        finally:
            self._door.close()
            self._meter.close()
            self._observer.close()
            self._poll.close()
            for member in self._members.values():
                self._keeper.outputs.remove(member.written)
                member.close()
            self._keeper.outputs.remove(self._logged)
            os.close(self._log)
        if left:
            raise HarnessError(f"processes {left} were killed and still run: end them, or restart the machine")

    def _await_ends(self) -> list[int]:
        """Wait for the ranks to end and return the pids of those that have not.

        The keeper has reaped them all; if it is gone, the kernel is killing them at this moment.
        """
        limit = time.monotonic() + END_LIMIT
        left = []
        for member in self._members.values():
            if not processes.wait_readable([member.pidfd], limit - time.monotonic()):
                left.append(member.pid)
        return left

    # --- start

    def _accept(self, limit: float, seconds: float) -> None:
        keeper, sources = self._keeper.connection.fileno(), [self._keeper.connection.fileno(), self._door.fileno()]
        while self._door.missing:
            # Computed in each round, so that no number of messages on the channel can extend the limit.
            left = min(limit, self._cutoff.until) - time.monotonic()
            ready = processes.wait_readable(sources, min(left, _COMPILE_LAP)) if left > 0 else set()
            if not ready and left > _COMPILE_LAP:
                continue
            if not ready:
                self._start_failed(f"ranks {sorted(self._door.missing)} did not start within {seconds:g} s")
            if keeper in ready:
                self._agent_ended()
            try:
                self._welcome()
            except BlockingIOError:
                continue
            except EOFError:
                sources = [keeper]  # the agent has ended, which the keeper reports
        self._watch(keeper, ("agent", -1))
        self._door.close()

    def _welcome(self) -> None:
        joined = self._door.take()
        if joined is None:
            return
        rank, pid, connection = joined.rank, joined.pid, joined.connection
        connection.setblocking(False)
        output, dump, state = (children.memory_file(f"rank{rank}-{name}") for name in ("output", "dump", "state"))
        compiles, still = compiling.memory_file(), standstill.memory_file()
        wire.send_descriptors(connection, [output, dump, state, compiles, still, *self._hold])
        pidfd = processes.open_pidfd(pid)
        inbox = wire.Inbox(connection)
        written = self._keeper.outputs.add(output)
        self._members[rank] = _Member(
            rank, pid, pidfd, connection, inbox, output, dump, state, compiles, still, written
        )
        self._watch(connection.fileno(), ("wire", rank))
        self._watch(pidfd, ("exit", rank))

    def _set_up(self, frame: bytes, limit: float, seconds: float) -> None:
        answers = _Round(set(self._members))
        self._meter = compiling.Meter(
            [member.compiling for _, member in sorted(self._members.items())], limit=_COMPILE_LIMIT
        )
        self._observer = standstill.Observer({rank: member.standstill for rank, member in self._members.items()})
        self._starved = Starved(self.pids)
        self._send(frame, limit, answers)
        self._gather(answers, limit)
        if answers.cut_off:
            self._cut_off(answers)
        if answers.exits:
            self._crashed(answers)
        if answers.errors:
            self._raise_setup_errors(answers.errors)
        if answers.waiting:
            self._start_failed(f"ranks {sorted(answers.waiting)} were not set up within {seconds:g} s")
        self.ranks = tuple(answers.results[place] for place in sorted(answers.results))

    def _raise_setup_errors(self, errors: Mapping[int, RankError]) -> NoReturn:
        for kind in (UsageError, HarnessError):
            for rank in sorted(errors):
                if errors[rank].is_a(kind):
                    raise kind(errors[rank].message) from errors[rank]
        raise RankFailure(errors, output=self._output())

    def _start_failed(self, reason: str) -> NoReturn:
        parts = [reason]
        for rank, text in self._stacks(self._members).items():
            parts.append(f"--- rank {rank}\n{text}")
        parts += [f"--- output of rank {rank}\n{text}" for rank, text in self._output().items() if text.strip()]
        parts.append(f"--- elastic agent\n{self._logged.text()}")
        raise HarnessError("\n".join(parts))

    def _agent_ended(self) -> NoReturn:
        self._start_failed(self._keeper.last_word())

    # --- exchange

    def _watch(self, descriptor: int, source: tuple[str, int]) -> None:
        self._sources[descriptor] = source
        self._poll.register(descriptor, select.EPOLLIN)

    def _send(self, frame: bytes, limit: float, answers: _Round) -> None:
        for member in self._members.values():
            try:
                # Most frames fit the kernel's buffer, so this rarely waits; a stopped rank must not stop us.
                if not wire.send_within(member.connection, frame, limit):
                    return  # its silence shows in the gathering
            except ConnectionError:
                continue  # its death shows in the gathering

    def _gather(self, answers: _Round, limit: float) -> None:
        """Receive answers until every rank has answered, a rank ended or was cut off, or the limit passed, or the grace
        after an error.

        Time in which a rank compiles, or waits for a compilation, extends the limit, by up to _COMPILE_LIMIT in all; so
        does time in which a rank gets no core, see ``harness.ranks.starved``.

        The grace ends early when the ranks that have not answered use no CPU at all, except with GPUs, for which a rank
        may wait asleep. That changes no verdict: the call is a RankFailure by then, and is only reported sooner.

        If no rank can go on, see ``harness.standstill``, the call ends at once; if ranks wait on the host, and the
        others at most poll, see ``harness.ranks.idle``, after some seconds.
        """
        before: list[int] | None = None
        idle = Idle()
        while answers.waiting and not answers.exits and not answers.cut_off:
            compiled = self._meter.lap()
            limit += compiled + self._starved.lap()
            limit = min(limit, self._cutoff.until)
            seconds = min(limit - time.monotonic(), _COMPILE_LAP)
            if seconds <= 0:
                return
            failed_before = bool(answers.errors)
            if answers.errors:
                seconds = min(limit - time.monotonic(), _IDLE_WINDOW)
                before = self._cpu_ticks(answers.waiting)
            events = self._poll.poll(seconds)
            for descriptor, _ in events:
                self._take(descriptor, answers)
            if (answers.errors or answers.exits or answers.cut_off) and not failed_before:
                self._cutoff.on_failure()
            if compiled or events:
                idle.begin()
            if not answers.errors and not events and self._is_whole and not self._on_gpus:
                stopped = self._observer.look(answers.waiting)
                if stopped is None:
                    polling = self._observer.polling(answers.waiting)
                    still = sorted(answers.waiting - polling.keys())
                    if still and idle.lap([self._members[rank].pid for rank in still], polling):
                        stopped = standstill.Standstill(tuple(polling), (), tuple(still))
                if stopped is not None:
                    answers.standstill = str(stopped)
                    return
            if answers.errors and not failed_before:
                limit = min(limit, time.monotonic() + self._failure_grace)
            elif self._on_gpus or not answers.errors or events or before is None:
                continue
            elif before == self._cpu_ticks(answers.waiting):
                return  # the others are idle: they wait for the rank that raised

    def _cpu_ticks(self, ranks: set[int]) -> list[int] | None:
        """Return the CPU time of the ranks and their compilers so far; None if one of them is runnable."""
        ticks = [processes.cpu_ticks(self._members[rank].pid) for rank in sorted(ranks)]
        return None if None in ticks else [tick for tick in ticks if tick is not None]

    def _take(self, descriptor: int, answers: _Round) -> None:
        if descriptor not in self._sources:
            return  # the event before it in this round ended its watch
        kind, rank = self._sources[descriptor]
        if kind == "agent":
            self._agent_word(answers)
        elif kind == "wire":
            self._take_messages(self._members[rank], answers)
        else:
            member = self._members[rank]
            self._take_messages(member, answers)  # an answer may have come before the end
            self._unwatch(descriptor)
            if rank in answers.poisoned:
                return  # it announced its exit
            status = processes.exit_status(member.pid)
            answers.exits[rank] = _REAPED if status is None else children.describe_exit(status)

    def _take_messages(self, member: _Member, answers: _Round) -> None:
        if member.connection.fileno() not in self._sources:
            return
        try:
            messages = member.inbox.take()
        except wire.WireClosedError:
            self._unwatch(member.connection.fileno())  # its exit shows on the pidfd
            return
        except wire.FrameError as error:
            self._refuse(member, str(error), answers)
            return
        for message in messages:
            try:
                self._file(member.rank, message, answers)
            except ValueError as error:
                self._refuse(member, str(error), answers)

    def _file(self, rank: int, message: Any, answers: _Round) -> None:
        """Record the answer of a rank. Raises ValueError for an invalid message, and for an answer without a call."""
        if not isinstance(message, list) or len(message) != 2 or message[0] not in _ANSWERS:
            raise ValueError("a message that is not an answer to a call")
        if rank not in answers.waiting:
            raise ValueError("an answer that no call waits for")
        kind, value = message
        if kind in ("error", "failed", "poisoned"):
            answers.errors[rank] = RankError.from_plain(rank, value)
            if kind == "poisoned":
                answers.poisoned.add(rank)
        else:
            answers.results[rank] = value
        answers.waiting.discard(rank)

    def _refuse(self, member: _Member, reason: str, answers: _Round) -> None:
        """Stop reading from this rank, and record the reason."""
        answers.cut_off.setdefault(member.rank, clipped(reason, _REASON_LIMIT))
        self._unwatch(member.connection.fileno())

    def _agent_word(self, answers: _Round) -> None:
        """Record that the agent or the keeper ended while ranks ran: the ranks die with it, and their exits follow."""
        self._unwatch(self._keeper.connection.fileno())
        self._orphaned = self._keeper.last_word()

    def _unwatch(self, descriptor: int) -> None:
        if self._sources.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    # --- reports

    def _cut_off(self, answers: _Round) -> NoReturn:
        output = self._output()
        self.end()
        raise RankCutOff(answers.cut_off, output)

    def _cut_output(self) -> dict[int, int]:
        return {rank: member.written.lost for rank, member in sorted(self._members.items()) if member.written.lost}

    def _crashed(self, answers: _Round) -> NoReturn:
        full = machine.full_memory()  # read first: the end of the group frees the memory that its ranks held there
        limit = time.monotonic() + _CRASH_WINDOW
        while len(answers.exits) < len(self._members) and (seconds := limit - time.monotonic()) > 0:
            for descriptor, _ in self._poll.poll(seconds):
                self._take(descriptor, answers)
        self._await_agent(answers)
        output = self._output()
        log = self._logged.text()
        self.end()
        if self._orphaned:  # then the case did not end the ranks
            raise HarnessError(f"{self._orphaned}, and its ranks ended with it\n{log}")
        raise RankCrash(_by_themselves(answers.exits), output, answers.errors, full)

    def _await_agent(self, answers: _Round) -> None:
        """Wait for the agent's end if all ranks were killed at once: its end is reported later than theirs."""
        keeper = self._keeper.connection.fileno()
        killed = set(answers.exits) == set(self._members) and set(answers.exits.values()) <= {_KILLED, _REAPED}
        if killed and keeper in self._sources and processes.wait_readable([keeper], _AGENT_WINDOW):
            self._agent_word(answers)

    def _stacks(self, ranks: Any) -> dict[int, str]:
        chosen = {
            rank: (member.pid, member.pidfd, member.dump, member.state)
            for rank, member in sorted(self._members.items())
            if rank in ranks
        }
        return stacks.collect(chosen) if chosen else {}

    def _output(self) -> dict[int, str]:
        return {rank: member.tail() for rank, member in sorted(self._members.items())}


def _by_themselves(exits: Mapping[int, str]) -> dict[int, str]:
    """Return the exits without those of ranks that the elastic agent ended, because another rank had ended before.

    The agent looks at its ranks every few seconds; its SIGTERM may reach the others while further deaths are awaited.
    """
    others = {rank: how for rank, how in exits.items() if how != _TERMINATED}
    return others or dict(exits)


def _running(pidfd: int) -> bool:
    return not processes.wait_readable([pidfd], 0)


def _serves_gpus(backend: str) -> bool:
    """Return whether a backend such as ``cpu:gloo,cuda:nccl`` names a device besides the CPU."""
    return any(":" in entry and not entry.startswith("cpu:") for entry in backend.split(","))
