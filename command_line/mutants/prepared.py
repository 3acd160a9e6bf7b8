"""The prepared process that runs tests on copies of the library, or of the checkout: what they import is imported once.

Most of the time of a short run are imports. So one process imports all of it, and forks a child for each run, which
calls pytest with the run's arguments; the child's ranks are forked too, see ``harness.interpreters``. Nothing under
test is imported before the fork: a child ends with ``FOREIGN`` if there is a module of it, or if its name leads to
another folder than the run's own. For copies of the library that is the library: torch, Triton and the suite are
imported, and ``fixtures.worker`` checks the same on each rank. For copies of the checkout it is every package of the
project: only what others have written is imported, and a child forgets the modules that this process consists of.

``Prepared`` is the side of the command, ``main`` that of the process. Messages to the process: ["run", number,
arguments, folder, log] and ["kill", number]. Answers: ["ready", reason or ""] once, then for each run ["ended", number,
wait status, CPU seconds, processes left].
"""

from __future__ import annotations

import gc
import importlib.util
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Sequence, Set
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import psutil

from command_line.mutants.checkouts import Checkouts
from command_line.suite.process import TAIL_LINES, Suite, child_environment, ending_of, pytest_arguments
from harness import devices, interpreters
from harness.errors import HarnessError
from harness.ranks import group, keeper, processes, wire
from mutants import planting

LOG = "prepared.log"
FOREIGN = 70
"""Exit status of a run that would have tested another copy of the library."""

START_LIMIT, END_LIMIT = 300.0, 60.0
"""Seconds that the imports may take, and that all processes of a killed run may take to end."""

_ORPHANS = 20.0
"""Seconds that the processes of a run may still take for their own end after the run has ended."""

PLAIN_ASSERTIONS = "--assert=plain"
"""Option of pytest. The ranks get the suite's modules as the run has imported them: with Python's own assertions, as
ranks that import them themselves. A verdict on a mutant needs no explanation of a failure, and rewriting takes time."""

_KINDS = ("library", "checkout")
"""The runs of a process use copies of the library, or, for mutants of the harness, of the whole checkout."""

_OTHERS = (
    "torch", "torch.distributed.launcher.api", "triton", "triton.experimental.gluon", "triton.backends",
    "numba", "yaml", "jsonschema", "click", "cryptography.hazmat.primitives.asymmetric.ed25519", "jinja2",
    "rich.console", "scipy.stats", "msgpack", "psutil", "hypothesis.strategies", "hypothesis.database",
)  # fmt: skip
"""Modules that tests of the harness import and that this project does not contain: one that is missing costs time."""

_PER_RUN = 2
"""Processes that each run reserves: the keeper of its ranks, and the process that looks capabilities up."""


class Prepared:
    """The prepared process, which is started at construction and ends with ``close``, or with this process.

    Use it as a context manager, in the main thread. ``folder``: where its log is kept. ``further``: modules that it
    imports besides. ``checkout``: its runs are on copies of the checkout, those of ``checkouts``, else on copies of the
    library.
    """

    def __init__(self, folder: Path, further: Sequence[str] = (), *, checkout: bool = False) -> None:
        self._ended: dict[int, tuple[int, float, list[str]]] = {}
        self._runs = 0
        self.checkouts = Checkouts()
        self._connection, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno()), _KINDS[checkout], *further]
            environment = {**child_environment(), **group.QUIET}
            self._suite = Suite(
                command, folder / f"{_KINDS[checkout]}-{LOG}", environment, descriptors=[theirs.fileno()]
            )
        try:
            kind, reason = self._answer(START_LIMIT)
            if kind != "ready" or reason:
                raise HarnessError(f"the prepared process cannot run the suite: {reason or kind}")
        except BaseException:
            self.close()
            raise
        self._connection.setblocking(False)
        self._inbox = wire.Inbox(self._connection)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._suite.pid

    def run(self, arguments: Sequence[str], folder: Path, log: Path) -> Run:
        """Start pytest with these arguments in ``folder``, where the copy is. Its output goes to ``log``."""
        self._runs += 1
        self._send(["run", self._runs, list(arguments), str(folder), str(log)])
        return Run(self, self._runs, log)

    def ended(self, number: int) -> tuple[int, float, list[str]] | None:
        """Return wait status, CPU seconds and the names of processes left of a run that has ended, else None."""
        if number in self._ended:
            return self._ended[number]
        try:
            for message in self._inbox.take():
                kind, ended, *rest = message
                assert kind == "ended"  # sanity check
                self._ended[ended] = tuple(rest)
        except wire.WireClosedError:
            raise HarnessError(f"the prepared process ended: {self._last_line()}") from None
        return self._ended.get(number)

    def kill(self, number: int) -> None:
        """Kill a run and all its processes. HarnessError if they do not end."""
        if self.ended(number) is None:
            self._send(["kill", number])
        end = time.monotonic() + END_LIMIT
        while (ended := self.ended(number)) is None:
            if time.monotonic() > end:
                raise HarnessError(f"the processes of a killed run did not end within {END_LIMIT:g} s")
            processes.wait_readable([self._connection.fileno()], 0.1)
        if ended[2]:
            raise HarnessError(f"processes {', '.join(ended[2])} were killed and still run: end them")

    def close(self) -> None:
        """End the process with everything below it. Idempotent."""
        self._connection.close()
        end = time.monotonic() + END_LIMIT
        while self._suite.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        self._suite.__exit__(None, None, None)
        self.checkouts.close()

    def __enter__(self) -> Prepared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, message: list[Any]) -> None:
        try:
            sent = wire.send_within(self._connection, wire.encode(message), time.monotonic() + END_LIMIT)
        except ConnectionError:
            raise HarnessError(f"the prepared process ended: {self._last_line()}") from None
        if not sent:
            raise HarnessError(f"the prepared process did not read a message within {END_LIMIT:g} s")

    def _answer(self, limit: float) -> tuple[str, str]:
        if not processes.wait_readable([self._connection.fileno()], limit):
            raise HarnessError(f"the prepared process did not import the suite within {limit:g} s")
        try:
            kind, reason = wire.receive(self._connection)
        except (wire.WireClosedError, ConnectionError):
            raise HarnessError(f"the prepared process ended: {self._last_line()}") from None
        return kind, reason

    def _last_line(self) -> str:
        self._suite.join()
        lines = [line for line in self._suite.tail if line.strip()]
        return lines[-1] if lines else "without a word"


class Run:
    """A run of the suite in a child of the prepared process, with the methods of ``Suite``."""

    def __init__(self, prepared: Prepared, number: int, log: Path) -> None:
        self._prepared = prepared
        self._number = number
        self._log = log

    def poll(self) -> int | None:
        """Return the exit status if the run has ended (negative: the signal that ended it), else None."""
        ended = self._prepared.ended(self._number)
        return None if ended is None else os.waitstatus_to_exitcode(ended[0])

    def join(self) -> None:
        """Return at once: the output is complete when the run has ended."""

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all processes of a run that has ended."""
        ended = self._prepared.ended(self._number)
        return 0.0 if ended is None else ended[1]

    @property
    def tail(self) -> deque[str]:
        """The last lines of the output."""
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.is_file() else ""
        return deque(text.splitlines(), maxlen=TAIL_LINES)

    def ending(self) -> str | None:
        """Return a clause that describes an abnormal end, or None if the status is 0 or 1, as for every test run."""
        status = self.poll()
        return None if status is None else ending_of(status)

    def close(self) -> None:
        """Kill the run if it has not ended, with every process that it started."""
        self._prepared.kill(self._number)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- the process -----------------------------------------------------------------------------------------------------


def main(descriptor: int, kind: str, further: Sequence[str]) -> None:
    """Import what the runs need, and run pytest as the command requests over the socket ``descriptor``, until that is
    closed."""
    checkout = kind == _KINDS[True]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command closes the connection when it is interrupted
    processes.outlive_parent()  # the end of the connection shows that, and runs may have started processes
    processes.adopt_orphans()
    with socket.socket(fileno=descriptor) as connection:
        try:
            wire.send(connection, ["ready", _prepare(checkout, further)])
            _Server(connection, checkout).serve()
        except (wire.WireClosedError, ConnectionError):
            pass  # the command has ended, or needs no more runs
        finally:
            left = processes.end_descendants()
    if left:
        raise HarnessError(f"processes {', '.join(left)} were killed and still run")


def _prepare(checkout: bool, further: Sequence[str]) -> str:
    """Import what runs and their ranks need, and return why that failed, or ""."""
    for name in (*further, *(_OTHERS if checkout else ())):
        importlib.import_module(name)
    if not checkout and (reason := _import_suite()):
        return reason
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    return "" if threads == 1 else f"it has {threads} threads after its imports, and a fork would have one of them"


def _import_suite() -> str:
    import pytest

    status = pytest.main(
        pytest_arguments([""], PLAIN_ASSERTIONS, "--collect-only", "-q", "--level", "ci", "--ranks", "2")
    )
    if status:
        return f"collecting the tests ended with exit status {int(status)}"
    keeper.load((keeper.COMPILE_ONCE, *group.MODULES, "fixtures.worker", *devices.known("emulated", None).modules))
    return ""


class _Server:
    """The runs of the process, by process id: number and pidfd."""

    def __init__(self, connection: socket.socket, checkout: bool) -> None:
        self._connection = connection
        self._checkout = checkout
        self._running: dict[int, tuple[int, int]] = {}

    def serve(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._connection, select.POLLIN)
            for _, descriptor in self._running.values():
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            for pid, (number, descriptor) in list(self._running.items()):
                if descriptor in ready:
                    self._end(pid, number, descriptor)
            if self._connection.fileno() in ready:
                kind, number, *rest = wire.receive(self._connection)
                if kind == "run":
                    self._start(number, *rest)
                else:
                    self._kill(number)

    def _start(self, number: int, arguments: list[str], folder: str, log: str) -> None:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for descriptor in (self._connection.fileno(), *(each for _, each in self._running.values())):
                os.close(descriptor)
            _child(parent, arguments, Path(folder), log, self._checkout)
        self._running[pid] = (number, processes.open_pidfd(pid))

    def _kill(self, number: int) -> None:
        for pid, (running, _) in self._running.items():
            if running == number:
                os.kill(pid, signal.SIGKILL)  # a child of this process that is not reaped yet

    def _end(self, pid: int, number: int, descriptor: int) -> None:
        _, status, used = os.wait4(pid, 0)
        os.close(descriptor)
        del self._running[pid]
        left, further = self._end_orphans()
        wire.send(self._connection, ["ended", number, status, used.ru_utime + used.ru_stime + further, left])

    def _end_orphans(self) -> tuple[list[str], float]:
        """Wait for the end of processes whose run has ended, kill them if that takes too long, and reap them.

        Returns those that are left, and the CPU seconds of the others. A run adopts its own orphans, so every child of
        this process that is not a run was left by one that has ended.
        """
        myself, seconds = psutil.Process(), 0.0
        begun = time.monotonic()
        while orphans := [child for child in myself.children() if child.pid not in self._running]:
            waited = time.monotonic() - begun
            for orphan in orphans:
                pid, _, used = os.wait4(orphan.pid, os.WNOHANG)
                seconds += used.ru_utime + used.ru_stime if pid else 0.0
                if not pid and waited > _ORPHANS:
                    _kill_all(orphan)
            if waited > 2 * _ORPHANS:
                return [str(orphan.pid) for orphan in orphans if orphan.is_running()], seconds
            time.sleep(0.005)
        return [], seconds


def _kill_all(process: psutil.Process) -> None:
    try:
        for each in [*process.children(recursive=True), process]:
            each.kill()
    except psutil.NoSuchProcess:
        return  # it has ended in the meantime; what it left is an orphan now


def _child(parent: int, arguments: list[str], folder: Path, log: str, checkout: bool) -> NoReturn:
    """Call pytest, as the body of a run."""
    status = 3
    try:
        processes.die_with_parent(parent)
        processes.adopt_orphans()
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        known = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), known]))
        names = frozenset({planting.NAME})
        if checkout:
            names = _project()
            _forget(names)
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        importlib.invalidate_caches()
        foreign = _foreign(folder, names)
        if not foreign:
            importlib.import_module(interpreters.__name__).reserve(_PER_RUN)  # of the copied checkout
            import pytest

            status = int(pytest.main([*arguments, PLAIN_ASSERTIONS]))
            foreign = _foreign(folder, names)
        if foreign:
            print(f"ERROR: {foreign}", flush=True)
            status = FOREIGN
    except BaseException:  # noqa: BLE001 - an interpreter would print it too
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _project() -> frozenset[str]:
    """Return the names of the packages and modules in the project's folder."""
    inside = (entry for entry in planting.ROOT.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").is_file())
    return frozenset(entry.stem for entry in inside)


def _forget(names: Set[str]) -> None:
    """Forget the modules of these packages, so that they are imported again, and the folder that they are from."""
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != planting.ROOT]


def _foreign(folder: Path, names: Set[str]) -> str:
    """Return which module of the packages ``names``, all of which are in ``folder``, is from elsewhere, or ""."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in names and (file is None or folder not in Path(file).parents):
            return f"{name} was imported from {file}, expected the copy in {folder}"
    for name in sorted(names):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or folder not in Path(spec.origin).parents:
            return f"{name} would be imported from {spec and spec.origin}, expected the copy in {folder}"
    return ""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
