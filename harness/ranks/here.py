"""Nodes on this machine that are separate as machines are: no shared memory, no view of each other's processes.

Each has Linux namespaces of its own, made by util-linux's ``unshare``: of processes (with its own /proc, by which
emulated ranks map each other's memory), of mounts (with its own /dev/shm), of System V memory, and of host names. All
of them are in one network namespace, which no process outside can reach, where the kernel permits one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence

from harness.errors import UsageError
from harness.ranks import network, processes
from harness.ranks.nodes import Nodes
from harness.ranks.spanning import Link

_START_LIMIT = 60.0
_HOST = "127.0.0.1"
_PREPARE = 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec "$@"'


class NodesHere(Nodes):
    """``count`` nodes on this machine; ``links`` are the connections to them. ``close`` ends what is left of them.

    Raises UsageError if the kernel refuses namespaces.
    """

    host = _HOST
    """The address of the first one, for the others."""

    def __init__(self, count: int) -> None:
        if shutil.which("unshare") is None:
            raise UsageError("nodes on one machine need the command unshare: install util-linux")
        pairs = [socket.socketpair() for _ in range(count)]
        self._start("here.main", [theirs for _, theirs in pairs])
        self.links = [Link(f"node {i}", mine, f"127.0.0.{i + 1}") for i, (mine, _) in enumerate(pairs)]
        try:
            for link in self.links:
                self._await(link)
        except BaseException:
            self.close()
            raise

    def _await(self, link: Link) -> None:
        """Wait for the first byte of the node, which it sends from within its namespaces."""
        ready = processes.wait_readable([link.connection.fileno()], _START_LIMIT)
        if not ready or link.connection.recv(1) != b"n":
            text = os.pread(self._log, 4096, 0).decode(errors="replace").strip().splitlines()
            raise UsageError(
                f"nodes on one machine need namespaces, which the kernel refused for {link.name}:"
                f" {text[-1] if text else 'no answer'}; run as root with CAP_SYS_ADMIN, or where ordinary users may"
                " have user namespaces"
            )


def main(descriptors: Sequence[int]) -> None:
    """Start a node for each connected socket, in one network, and wait for their end. Never returns."""
    refusal = network.enter()
    if refusal:
        print(f"the nodes' network is that of this machine: {refusal}", file=sys.stderr, flush=True)
    started = [_node(index, descriptor) for index, descriptor in enumerate(descriptors)]
    for descriptor in descriptors:
        os.close(descriptor)
    for process in started:
        process.wait()
    os._exit(0)


def _node(index: int, descriptor: int) -> subprocess.Popen[bytes]:
    code = f"import sys; sys.path[:] = {sys.path!r}; import socket; from harness.ranks import node; "
    code += f"s = socket.socket(fileno={descriptor}); s.send(b'n'); node.main([s.detach()])"
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    separate = ("--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc")
    return subprocess.Popen(
        ["unshare", *root, *separate, "sh", "-c", _PREPARE, f"node-{index}", sys.executable, "-c", code],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"},
    )
