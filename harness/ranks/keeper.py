"""The keeper: a small child process of the controller that starts the groups and makes sure that they end.

It enters the group's network, see ``network``, imports the ranks' modules once, and forks an elastic agent per
generation of the group (so a restart costs no imports). It is the subreaper of everything below it (so no process can
escape it), and ends all of it when the controller requests that or itself ends, in whatever way: the keeper waits on
the controller's pidfd. It is single-threaded and idle otherwise.

Messages from the controller: ["start", fields of the spec], ["end", rank pids, grace seconds]. Answers: ["network",
reason] once, then ["ready", threads] or ["failed", RankError in plain form] once; ["started", agent pid], ["ended",
processes left], ["agent", wait status] at any time.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from harness import devices, garbage
from harness.ranks import agent, network, processes, wire
from harness.ranks.errors import RankError
from harness.ranks.spec import Spec

COMPILE_ONCE = "harness.ranks.compile_once:hash_compiler_ahead"
_SHARED_MEMORY = "/dev/shm"


def main(descriptors: Sequence[int], controller: int, private: bool) -> None:
    """Serve the controller (its pid) on the socket that is the first of ``descriptors`` until it is gone.

    ``private``: enter a private network; the first answer is the reason why that failed, or "".
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.adopt_orphans()
    connection = socket.socket(fileno=descriptors[0])
    wire.send(connection, ["network", network.enter() if private else ""])
    keeper = _Keeper(connection, controller)
    try:
        keeper.serve()
    finally:
        keeper.end((), 0.0)
    os._exit(0)


class _Keeper:
    """State and main loop of the keeper process."""

    def __init__(self, connection: socket.socket, controller: int) -> None:
        self._connection = connection
        self._controller = processes.open_pidfd(controller)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._poll.register(self._controller, select.POLLIN)
        self._agent: tuple[int, int] | None = None
        self._run_id = ""

    def serve(self) -> None:
        try:
            if not self._prepare(wire.receive(self._connection)):
                return
            while True:
                ready = {descriptor for descriptor, _ in self._poll.poll()}
                if self._controller in ready:
                    return
                if self._agent is not None and self._agent[1] in ready:
                    self._agent_ended()
                if self._connection.fileno() in ready:
                    self._obey(wire.receive(self._connection))
        except (wire.WireClosedError, ConnectionError):
            return  # the controller is gone: main ends everything

    def _prepare(self, preload: list[str]) -> bool:
        try:
            with garbage.none_so_far():
                load(preload)
        except BaseException as error:  # noqa: BLE001 (it is raised in the controller)
            wire.send(self._connection, ["failed", RankError.of(-1, error).to_plain()])
            return False
        wire.send(self._connection, ["ready", thread_count()])
        return True

    def _obey(self, message: list[Any]) -> None:
        if message[0] == "start":
            self._start(Spec(**message[1]))
        elif message[0] == "end":
            left = self.end(tuple(message[1]), message[2])
            wire.send(self._connection, ["ended", left])

    def _start(self, spec: Spec) -> None:
        log, channel = wire.receive_descriptors(self._connection, 2)
        self._run_id = spec.run_id
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._connection.close()
                os.close(self._controller)
                agent.main(spec, log, channel, parent)
            finally:
                os._exit(1)
        os.close(log)
        os.close(channel)
        descriptor = processes.open_pidfd(pid)
        self._agent = (pid, descriptor)
        self._poll.register(descriptor, select.POLLIN)
        wire.send(self._connection, ["started", pid])

    def _agent_ended(self) -> None:
        assert self._agent is not None  # sanity check
        pid, descriptor = self._agent
        self._forget_agent(descriptor)
        _, status = os.waitpid(pid, 0)
        wire.send(self._connection, ["agent", status])

    def end(self, ranks: tuple[int, ...], grace: float) -> list[str]:
        """End everything below the keeper and remove the shared memory that carries the run's name or their ids."""
        if self._agent is not None:
            self._forget_agent(self._agent[1])
        ended = {*ranks, *processes.descendants()}
        left = processes.end_descendants(ranks, grace)
        if self._run_id:
            remove_shared_memory(self._run_id, ended)
            self._run_id = ""
        return left

    def _forget_agent(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        self._agent = None


def load(preload: Iterable[str]) -> None:
    """Import modules. ``"module:function"`` also calls the function, and waits for the thread that it may return."""
    threads = []
    for name in preload:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            threads.append(getattr(imported, function)())
    for thread in filter(None, threads):
        thread.join()


def thread_count() -> int:
    """Return the number of threads of this process, after a short wait for threads that were just joined."""
    for _ in range(50):
        if len(os.listdir("/proc/self/task")) == 1:
            return 1
        time.sleep(0.002)
    return len(os.listdir("/proc/self/task"))


def remove_shared_memory(run_id: str, ended: Collection[int]) -> None:
    """Remove the files that killed ranks left in shared memory.

    These are files with ``TORCHELASTIC_RUN_ID`` in their names, and files that torch and drivers name after a process:
    torch's counts of references to interprocess handles (``torch_PID_...``) and the drivers' own files. ``ended``:
    process ids, none of which is alive any more.
    """
    try:
        names = os.listdir(_SHARED_MEMORY)
    except FileNotFoundError:
        return
    of_drivers = (kind.shared_memory(pid) for kind in devices.gpu_kinds() for pid in ended)
    beginnings = (*(f"torch_{pid}_" for pid in ended), *filter(None, of_drivers))
    for name in names:
        if run_id in name or name.startswith(beginnings):
            try:
                os.unlink(os.path.join(_SHARED_MEMORY, name))
            except FileNotFoundError:
                continue  # its owner was faster
