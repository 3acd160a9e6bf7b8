"""The nodes of a group on several machines: this one, and those that join it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from harness import children
from harness.ranks import meeting
from harness.ranks.spanning import END_LIMIT, Link


class Nodes:
    """The nodes of a group, some of them started by this process. ``close`` ends those.

    ``links``: the connections to all of them, in the order of their numbers; ``host``: the address of the first one for
    the others.
    """

    links: Sequence[Link] = ()
    host: str
    _log = -1
    _process: subprocess.Popen[bytes]

    def _start(self, function: str, ends: Sequence[socket.socket]) -> None:
        """Start a process that calls ``function`` ("module.name") of this package with the descriptors of ``ends``,
        which this closes here."""
        self._log = children.memory_file("nodes")
        theirs = [end.fileno() for end in ends]
        module = function.partition(".")[0]
        code = f"import sys; sys.path[:] = {sys.path!r}; from harness.ranks import {module}; {function}({theirs!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=theirs,
            start_new_session=True,
        )
        for end in ends:
            end.close()

    def close(self) -> None:
        """Close the connections, at which nodes end, and wait for the end of the process. Idempotent."""
        if self._log < 0:
            return
        for link in self.links:
            link.connection.close()
        try:
            self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._log)
        self._log = -1

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class JoinedNodes(Nodes):
    """The node of this machine, number 0, and ``count`` - 1 others that join at ``endpoint``, see ``meeting``."""

    def __init__(self, endpoint: str, count: int, secret: bytes, report: Callable[[str], None]) -> None:
        others = meeting.Meeting(endpoint, count, secret, report)
        self.host = others.host
        mine, theirs = socket.socketpair()
        self._start("node.main", [theirs])
        self.links = [Link(f"node 0 ({socket.gethostname()})", mine), *others.links]
