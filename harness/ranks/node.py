"""A node: the process on one machine that runs a part of a group on several nodes, for the group's controller.

It has a ``RankGroup`` of its machine's ranks, which joins those of the other nodes as the agents of a torchrun on
several machines do: by elastic's c10d rendezvous, in the store that the first node hosts.

The controller sends, over a connected socket, the messages below; each but "hurry" has one answer. A node ends when the
connection does, and all processes below it end with it.

    ["open", fields of RankGroup]         ["opened", what it runs: host name, versions]
    ["store", host, port]                 ["store", port]       this node hosts the group's store
    ["start", fields of Span]             ["started", ranks of this node]
    ["call", target, payload, deadline]   ["results", results in the order of those ranks]
    ["renew"]                             ["renewed"]
    ["quit"]                              ["quitted"]
    ["hurry", seconds]                    the start or call in progress ends in that time

Instead of each but the last two, ["failed", kind, fields]: see ``failures``. During a start or a call, ["failing"]
states that a rank has failed, and ["compiling", seconds] for how long ranks of this node have compiled.
"""

from __future__ import annotations

import os
import platform
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from harness.devices import inventory
from harness.ranks import failures, leases, network, wire
from harness.ranks.generation import Span
from harness.ranks.group import RankGroup, RanksGone

LEASE_LIMIT = 60.0
"""Seconds that a node waits for GPUs that other runs hold."""

_LAP = 0.25
"""Seconds between two looks at what the ranks compile."""


def main(descriptors: Sequence[int]) -> None:
    """Serve the controller at the other end of a socket, the only descriptor, until it is gone; never returns."""
    [descriptor] = descriptors
    serve(socket.socket(fileno=descriptor))
    os._exit(0)


def serve(connection: socket.socket) -> None:
    """Serve the controller at the other end of ``connection``; returns after "quit".

    Ends this process if the connection closes: the ranks are then in the middle of something that no process waits for.
    """
    connection.setblocking(True)
    _Node(connection).serve()


def versions() -> dict[str, str]:
    """Return what must be equal on all nodes of a group."""
    import torch
    import triton

    installed = {"Python": platform.python_version(), "torch": torch.__version__, "Triton": triton.__version__}
    return {name: str(version) for name, version in installed.items()}


class _Node:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._group: RankGroup | None = None
        self._store: Any = None
        self._ending = False
        self._messages: queue.Queue[list[Any]] = queue.Queue()
        threading.Thread(target=self._receive, name="node-wire", daemon=True).start()

    def serve(self) -> None:
        answers: dict[str, Callable[..., list[Any]]] = {
            "open": self._open,
            "store": self._host,
            "start": self._start,
            "call": self._call,
            "renew": self._renew,
        }
        while True:
            kind, *arguments = self._messages.get()
            if kind == "quit":
                if self._group is not None:
                    self._group.close()
                if self._lease is not None:
                    self._lease.release()
                self._ending = True
                self._send(["quitted"])
                return
            try:
                answer = answers[kind](*arguments)
            except Exception as error:  # noqa: BLE001 (the controller raises it)
                ranks = self._ranks if self._group is not None else ()
                answer = ["failed", *failures.plain(error, ranks)]
            self._send(answer)

    _ranks: tuple[int, ...] = ()
    _lease: leases.Lease | None = None

    def _open(self, fields: dict[str, Any]) -> list[Any]:
        fields["preload"] = tuple(fields["preload"])
        gpus = fields.pop("gpus")
        if gpus is not None:
            device, count = gpus
            inventory.check(inventory.visible(device), count)
            self._lease = leases.acquire(inventory.visible(device), count, LEASE_LIMIT, print)
            fields["environment"] |= self._lease.environment()
            fields["hold"] = self._lease.descriptors
        self._group = RankGroup(**fields, network=network.NODES)
        self._group.cutoff.on_failure = lambda: self._send(["failing"])
        return ["opened", {"host": socket.gethostname(), **versions()}]

    def _host(self, host: str, port: int) -> list[Any]:
        import torch.distributed as dist

        stores: Any = dist
        self._store = stores.TCPStore(host, port, is_master=True, wait_for_workers=False, multi_tenant=True)
        return ["store", self._store.port]

    def _start(self, fields: dict[str, Any]) -> list[Any]:
        assert self._group is not None  # sanity check
        self._ranks = ()
        self._ranks = self._group.start_in(Span(**fields))
        return ["started", list(self._ranks)]

    def _call(self, target: str, payload: Any, deadline: float) -> list[Any]:
        assert self._group is not None  # sanity check
        done = threading.Event()
        threading.Thread(target=self._report, args=(done,), name="node-compiling", daemon=True).start()
        try:
            return ["results", self._group.call(target, payload, deadline)]
        except RanksGone as gone:
            return ["failed", failures.GONE, {"message": str(gone)}]
        finally:
            done.set()

    def _report(self, done: threading.Event) -> None:
        sent = 0.0
        while not done.wait(_LAP):
            assert self._group is not None  # sanity check
            seconds = self._group.compile_seconds
            if seconds > sent:
                sent = seconds
                self._send(["compiling", seconds])

    def _renew(self) -> list[Any]:
        if self._group is not None:
            self._group.renew()
        return ["renewed"]

    def _send(self, message: list[Any]) -> None:
        with self._sending:
            wire.send(self._connection, message)

    def _receive(self) -> None:
        while True:
            try:
                message = wire.receive(self._connection)
            except (wire.WireClosedError, OSError, wire.FrameError):
                if self._ending:
                    return
                os._exit(1)
            if message[0] == "hurry":
                if self._group is not None:
                    self._group.hurry(message[1])
            else:
                self._messages.put(message)
