"""Group of rank processes that runs functions on all ranks, and survives their failures, hangs and crashes."""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from harness import interpreters
from harness.errors import HarnessError, UsageError
from harness.ranks import flight_recorder, wire
from harness.ranks import network as networks
from harness.ranks.errors import RankFailure
from harness.ranks.fork_server import ForkServer, offered
from harness.ranks.generation import Cutoff, Generation, Span
from harness.ranks.keeper import COMPILE_ONCE
from harness.ranks.keeping import Keeper

logger = logging.getLogger(__package__)

QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Environment variables of every group, which keep libraries from starting threads of their own."""

MODULES = ("torch.distributed.launcher.api", "harness.ranks.worker")
"""Modules that the ranks of every group need."""

_IMPORTED = (COMPILE_ONCE, *MODULES)
"""Modules of the ranks of every group without GPUs. Triton is the first, since a thread computes its hash while the
others are imported."""


def share_imports(preload: Sequence[str] = ()) -> ForkServer | None:
    """Have the groups of this process and of its children share one process's imports, until the result is closed.

    ``preload``: modules that most of the groups need, as for ``RankGroup``; a group imports what else it needs. It
    makes no other difference to a group. Returns None if a process around this one has done it, or has reserved
    processes with these imports for this one.
    """
    return (
        None
        if interpreters.reserved()
        else offered((*_IMPORTED, *preload), {**QUIET, **networks.environment(None, False, {})})
    )


class Ranks(Protocol):
    """The common part of RankGroup and SpanningGroup: calls on all ranks. ``RankGroup`` documents them."""

    world_size: int
    generation: int

    @property
    def compile_seconds(self) -> float: ...

    @property
    def broken(self) -> bool: ...

    def call(self, target: str, payload: Any = None, deadline: float = 30.0) -> list[Any]: ...

    def renew(self) -> None: ...


class RanksGone(Exception):  # noqa: N818 (no error: the group on several nodes starts again)
    """The processes of a part of a group on several nodes have ended."""


class RankGroup:
    """N processes, started by torch.distributed.elastic at the first call, that execute calls until ``close``.

    ``setup`` is ``"module:function"``, called once per process as ``setup(info, options)`` after init_process_group,
    with ``info`` a dict of rank, world_size, local_rank and run_id. Every call receives its result as ``env`` (without
    setup: ``info``). These methods of ``env`` are optional: ``close()`` is called at the orderly end; ``describe() ->
    str`` is called on a separate thread while a call hangs, for the report; ``poisoned() -> bool`` is called after each
    call. If ``poisoned`` returns true, the device is lost: the call fails with ``env.fault`` or the exception that it
    raised, and the next call runs on a fresh group. Without GPUs the ranks are forked from a process that has imported
    torch, Triton and the setup's module, so a restart takes well under a second.

    ``options`` go to setup; the group itself reads ``backend`` (default ``gloo``), ``start`` (``fork``, or ``exec`` for
    fresh interpreters where drivers do not survive a fork, the default for other backends than gloo; ``fork`` also
    serves ranks with GPUs, as long as no module that is imported for them touches a GPU when it is imported),
    ``collective_timeout`` (seconds, default 1800: longer than any deadline) and ``compile_once`` (default True).

    ``failure_grace``: seconds that the other ranks have to answer after one raised, as long as they compute.
    ``end_grace``: seconds that the ranks of a group that is being killed have after SIGINT, and again after SIGTERM.
    ``environment`` is added to the ranks' environment. ``preload``: modules that setup and calls import anyway,
    imported once for all forked ranks and all restarts; none of them may start threads or touch a device when imported.
    ``hold``: open file descriptors, such as those of locks, which all processes of the group keep open too, until the
    last of them has ended. This process must keep them open until ``close``.

    ``network``: ``"private"`` is a network namespace of the group's own, where no other user, process or host can reach
    what gloo and NCCL listen on; start raises UsageError where the kernel refuses one. ``"loopback"`` is this machine's
    loopback interface: the ranks seal gloo's sockets as soon as they are connected, and raise HarnessError when another
    user's process was connected before; NCCL's sockets stay open to all users of this machine. None, the default: the
    value of the environment variable IRIS_HARNESS_NETWORK, else private where possible. Calls have no other network
    than this: in a private one they reach no host. A group spans one machine; ``spanning.SpanningGroup`` spans several,
    and has a group of this class on each, with the network ``"nodes"``.

    ``companion``: each rank has a second process, which setup receives as ``info["companion"]``, see ``companion``.

    Shared memory whose name in /dev/shm contains ``info["run_id"]`` (``TORCHELASTIC_RUN_ID`` in the environment) is
    removed when the processes end, in whatever way.

    Not thread-safe. Several groups, in one process or many, share nothing. All processes of the group end with this
    process, also when it is killed.
    """

    def __init__(
        self,
        world_size: int,
        setup: str | None = None,
        options: Mapping[str, Any] | None = None,
        start_timeout: float = 120.0,
        *,
        failure_grace: float = 2.0,
        end_grace: float = 0.25,
        environment: Mapping[str, str] | None = None,
        preload: Sequence[str] = (),
        hold: Sequence[int] = (),
        network: str | None = None,
        companion: bool = False,
    ) -> None:
        if world_size < 1:
            raise UsageError(f"a rank group needs at least 1 rank, got {world_size}")
        if setup is not None and ":" not in setup:
            raise UsageError(f"setup must be 'module:function', got {setup!r}")
        for descriptor in hold:
            if not _is_open(descriptor):
                raise UsageError(f"hold: expected open file descriptors, got {descriptor}, which is not open")
        options = dict(options or {})
        start = options.get("start", "fork" if options.get("backend", "gloo") == "gloo" else "exec")
        if start not in ("fork", "exec"):
            raise UsageError(f"options: expected 'fork' or 'exec' for 'start', got {start!r}")
        self.world_size = world_size
        self.generation = 0
        self._setup = setup
        self._options = options
        self._start_method = start
        self._start_timeout = start_timeout
        self._failure_grace = failure_grace
        self._end_grace = end_grace
        self._preloaded = tuple(preload)
        self._hold = tuple(hold)
        self._companion = companion
        self._network = networks.chosen(network)
        self._span: Span | None = None
        self.cutoff = Cutoff()
        self._uses_nccl = networks.uses_nccl(options)
        recorder = flight_recorder.ENVIRONMENT if self._uses_nccl else {}
        bound = networks.environment(self._network, self._uses_nccl, environment or {})
        self._environment = {**QUIET, **recorder, **(environment or {}), **bound}
        self._running = _Running()
        self._broken: BaseException | None = None
        self._closed = False
        # Also runs at the end of the interpreter, and when the group is collected without a close.
        self._finalizer = weakref.finalize(self, _Running.close, self._running, os.getpid())

    def call(self, target: str, payload: Any = None, deadline: float = 30.0) -> list[Any]:
        """Run ``target`` (``"module:function"``) as ``function(env, payload)`` on every rank; results in rank order.

        ``deadline``: seconds for the whole call. It excludes the start of processes and the time in which a rank
        compiles or waits for a compilation (Triton's, or numba's in the emulator); that time has its own limits, and
        HarnessError is raised when they pass. Time in which a rank is ready to run and gets no core extends the
        deadline, up to twice its length. Raises RankFailure, RankHang, RankCrash or RankCutOff if the case failed
        on the ranks; the next call runs on a fresh group if needed. Payload and results are plain data, see ``wire``:
        another payload raises TypeError or FrameError, another result RankFailure. If the group could not be started,
        every later call raises the same exception again.
        """
        frame = wire.encode(["call", target, payload])
        self.cutoff.until = math.inf
        generation = self._started()
        try:
            return generation.call(frame, deadline)
        except RankFailure:
            raise  # the generation has ended itself if it had to
        except BaseException:
            generation.end()  # for any exception, Ctrl-C included: no rank may be left in the middle of a call
            raise

    def start(self) -> None:
        """Start the processes now instead of at the first call."""
        self._started()

    def prepare(self) -> None:
        """Have the modules of the ranks imported from now on, in another process, while this one goes on. Errors of it
        are raised by the first call."""
        if not self._closed and self._running.keeper is None:
            private = self._network not in (networks.LOOPBACK, networks.NODES)
            self._running.keeper = Keeper(self._preload(), self._environment, self._hold, private)

    def renew(self, setup: str | None = None) -> None:
        """End the processes: the next call runs on fresh ones. ``setup`` replaces that of the constructor."""
        self._setup = setup or self._setup
        if (current := self._running.generation) is not None and not current.ended:
            current.quit()

    def start_in(self, span: Span) -> tuple[int, ...]:
        """Start processes as a part of a group on several nodes, and return their ranks.

        Until the next start, no call starts processes: if they have ended, it raises RanksGone.
        """
        self._span = span
        self.cutoff.until = math.inf
        return self._start().ranks

    def hurry(self, seconds: float) -> None:
        """End the start or the call in progress in ``seconds``, as at its deadline. Another thread may call this."""
        self.cutoff.until = min(self.cutoff.until, time.monotonic() + seconds)

    @property
    def compile_seconds(self) -> float:
        """Seconds of the last call in which at least one rank compiled: they did not count against its deadline."""
        generation = self._running.generation
        return 0.0 if generation is None else generation.compile_seconds

    @property
    def pids(self) -> tuple[int, ...]:
        """The ranks' process ids in rank order; empty while no process runs."""
        generation = self._running.generation
        return generation.pids if generation is not None and not generation.ended else ()

    @property
    def broken(self) -> bool:
        """True if the group could not be started: every call raises the same exception again."""
        return self._broken is not None

    @property
    def network(self) -> str | None:
        """The network that the processes have: ``"private"`` or ``"loopback"``; None before the first start."""
        return self._running.network

    def close(self) -> None:
        """End the group, in order if it is idle, else by killing it. Idempotent; the context manager calls it too."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> Generation:
        if self._closed:
            raise UsageError("this rank group was closed: make a new RankGroup for further calls")
        if self._broken is not None:
            raise self._broken
        current = self._running.generation
        if current is not None and not current.ended:
            lost = current.lost()
            if not lost:
                return current
            if self._span is None:
                logger.warning("ranks ended between calls: %s; starting a fresh group", lost)
            current.end()
        if self._span is not None:
            raise RanksGone("the processes of this node have ended")
        try:
            return self._start()
        except Exception as error:
            # A group that failed to start is not started again: every later case reports the first cause.
            self._broken = error
            raise

    def _start(self) -> Generation:
        if (lost := self._running.keeper) is not None and lost.ready and not lost.alive():
            lost.kill()
            self._running.keeper = None
        self.prepare()
        keeper = self._running.keeper
        assert keeper is not None  # sanity check: no call reaches a closed group
        if not keeper.ready:
            try:
                keeper.wait_ready(self._start_timeout)
            except BaseException:
                self._running.keeper = None
                raise
            self._running.network = networks.decide(self._network, keeper.not_private, self._uses_nccl)
        assert self._running.network is not None  # sanity check
        self.generation += 1
        self._running.generation = Generation(
            keeper,
            self.world_size,
            self._setup,
            self._options,
            start=self._start_method,
            network=self._running.network,
            environment=self._environment,
            start_timeout=self._start_timeout,
            failure_grace=self._failure_grace,
            end_grace=self._end_grace,
            hold=self._hold,
            companion=self._companion,
            span=self._span,
            cutoff=self.cutoff,
        )
        return self._running.generation

    def _preload(self) -> tuple[str, ...]:
        if self._start_method == "exec":
            return ("torch.distributed.launcher.api",)
        modules = list(_IMPORTED if self._options.get("compile_once", True) else MODULES)
        if self._setup is not None:
            modules.append(self._setup.partition(":")[0])
        return (*modules, *self._preloaded)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class _Running:
    """The processes that must be ended; a separate object, so that the group's finalizer can hold it."""

    def __init__(self) -> None:
        self.keeper: Keeper | None = None
        self.generation: Generation | None = None
        self.network: str | None = None

    def close(self, owner: int) -> None:
        if os.getpid() != owner:
            return  # a fork of the controller, which does not own the group
        try:
            if self.generation is not None and not self.generation.ended:
                self.generation.quit()
        except HarnessError:
            logger.exception("the rank group did not end cleanly")
            raise
        finally:
            if self.keeper is not None:
                self.keeper.kill()
                self.keeper = None
