"""Connection of ranks to their controller over a channel without an address, so that no other process can connect.

The controller makes a pair of connected sockets and passes one end, the channel, down to the ranks: the keeper receives
it as a descriptor, the agent and forked ranks inherit it, and a rank that is a fresh interpreter has it as its standard
input. A rank makes a second pair for itself and sends one end of that, with its number, over the channel. No socket is
bound to a name and none listens: a process that was not started below the keeper has nothing to connect to.

A message on the channel arrives whole or not at all, so the controller never waits for the rest of one.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from dataclasses import dataclass

logger = logging.getLogger(__package__)

_PEER = struct.Struct("3i")
_MOST_OF_MESSAGE = 32
_MOST_DESCRIPTORS = 4


@dataclass(frozen=True)
class Joined:
    """A rank that has joined: its number, its process id as Linux reports it, and its connection."""

    rank: int
    pid: int
    connection: socket.socket


class Door:
    """The controller's end of the channel. ``channel``: the ranks' end, for the keeper; close it once it is sent."""

    def __init__(self, world_size: int) -> None:
        self._missing = set(range(world_size))
        self._socket, self.channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when ``take`` will not block."""
        return self._socket.fileno()

    @property
    def missing(self) -> set[int]:
        """The ranks that have not joined yet."""
        return set(self._missing)

    def take(self) -> Joined | None:
        """Receive the next message without waiting. None for a message that is not a rank's: it is logged and dropped.

        Raises EOFError if no process holds the channel any more, BlockingIOError if there is no message.
        """
        data, descriptors, _, _ = socket.recv_fds(self._socket, _MOST_OF_MESSAGE, _MOST_DESCRIPTORS)
        if not data and not descriptors:
            raise EOFError("no process holds the channel any more")
        try:
            connection, pid = _connection_of(descriptors)
        except (ValueError, OSError) as error:
            for descriptor in descriptors:
                os.close(descriptor)
            logger.warning("a message on the channel of a starting group was dropped: %s", error)
            return None
        for rank in self._missing:
            if data == _name(rank):
                self._missing.remove(rank)
                return Joined(rank, pid, connection)
        connection.close()
        logger.warning("process %d tried to join as rank %r; missing: %s", pid, data, sorted(self._missing))
        return None

    def close(self) -> None:
        """Close both ends; connections of ranks that joined stay."""
        self._socket.close()
        self.channel.close()


def join(channel: int, rank: int) -> socket.socket:
    """Join the controller, as a rank, and return the connection to it.

    ``channel``: the descriptor of the channel, which this closes. Raises OSError if the controller is gone.
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs, socket.socket(fileno=os.dup(channel)) as door:
        socket.send_fds(door, [_name(rank)], [theirs.fileno()])
    if channel == 0:  # descriptor 0 stays in use, or the next file that is opened would be the standard input
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    else:
        os.close(channel)
    return mine


def _name(rank: int) -> bytes:
    return str(rank).encode("ascii")


def _connection_of(descriptors: list[int]) -> tuple[socket.socket, int]:
    """Return the connection that a rank sent and the pid of the process that made it.

    Raises ValueError if they are not that; the caller then closes the descriptors.
    """
    if len(descriptors) != 1:
        raise ValueError(f"expected 1 descriptor, got {len(descriptors)}")
    connection = socket.socket(fileno=descriptors[0])
    try:
        if (connection.family, connection.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
            raise ValueError(f"expected a Unix stream socket, got {connection.family!r}, {connection.type!r}")
        pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid != os.getuid():
            raise ValueError(f"the connection belongs to uid {uid}, expected {os.getuid()}")
    except BaseException:
        connection.detach()
        raise
    return connection, pid
