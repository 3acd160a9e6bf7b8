"""The nodes of a group on several machines: this one, and those that join it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable

from harness import children
from harness.ranks import meeting
from harness.ranks.spanning import END_LIMIT, Link


class Nodes:
    """The node of this machine, number 0, and those that join at ``endpoint``, see ``meeting``.

    ``links``: the connections to all of them, in the order of their numbers; ``host``: the address of this machine for
    the others.
    """

    def __init__(self, endpoint: str, count: int, secret: bytes, report: Callable[[str], None]) -> None:
        others = meeting.Meeting(endpoint, count, secret, report)
        self.host = others.host
        self._log = children.memory_file("node")
        mine, theirs = socket.socketpair()
        code = f"import sys; sys.path[:] = {sys.path!r}; from harness.ranks import node; node.main({theirs.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.links = [Link(f"node 0 ({socket.gethostname()})", mine), *others.links]

    def close(self) -> None:
        """Close the connections, at which nodes end, and wait for the end of this machine's. Idempotent."""
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
