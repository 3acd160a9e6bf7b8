"""The wire between controller and ranks: length-prefixed pickles over pairs of Unix sockets, see ``joining``.

Nothing of it has an address. Both ends are processes of one test run, so unpickling what comes over it is safe.

A frame is 8 bytes of length (little endian) and a pickle. Each end has one request under way at most.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 16


class WireClosedError(Exception):
    """The other end is gone."""


def encode(message: Any) -> bytes:
    """One frame. Raises whatever pickle raises for a message that is not plain data."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def send(connection: socket.socket, message: Any) -> None:
    """Send one message; blocks until the kernel has taken it, or the socket's timeout passes."""
    connection.sendall(encode(message))


def send_within(connection: socket.socket, frame: bytes, limit: float) -> bool:
    """Send a frame over a non-blocking socket until ``limit`` (monotonic); whether all of it went."""
    view = memoryview(frame)
    while view:
        try:
            view = view[connection.send(view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(connection, select.POLLOUT)
            if not poll.poll(max(0.0, limit - time.monotonic()) * 1000):
                return False
    return True


def receive_bytes(connection: socket.socket, most: int = 1 << 48) -> bytes:
    """The body of the next frame, not unpickled yet; blocks.

    Raises WireClosedError at the end of the stream, ValueError for a frame that is longer than ``most`` bytes.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > most:
        raise ValueError(f"a frame of {length} bytes, where at most {most} are taken")
    return _exactly(connection, length)


def receive(connection: socket.socket) -> Any:
    """The next message; blocks. Raises WireClosedError at the end of the stream."""
    return pickle.loads(receive_bytes(connection))


class Inbox:
    """Collects frames from a non-blocking socket, for use behind a poll."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()

    def take(self) -> list[Any]:
        """The messages that are complete by now. Raises WireClosedError at the end of the stream, with none left."""
        ended = False
        while True:
            try:
                chunk = self._connection.recv(_CHUNK)
            except BlockingIOError:
                break
            except ConnectionError:
                chunk = b""
            if not chunk:
                ended = True
                break
            self._data += chunk
            if len(chunk) < _CHUNK:
                break
        messages = self._complete()
        if ended and not messages:
            raise WireClosedError("the stream ended")
        return messages

    def _complete(self) -> list[Any]:
        messages = []
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            end = _LENGTH.size + length
            if len(self._data) < end:
                break
            messages.append(pickle.loads(memoryview(self._data)[_LENGTH.size : end].tobytes()))
            del self._data[:end]
        return messages


def send_descriptors(connection: socket.socket, descriptors: list[int]) -> None:
    """Hand open descriptors to the other end; exactly one ``receive_descriptors`` must take them."""
    socket.send_fds(connection, [b"d"], descriptors)


def receive_descriptors(connection: socket.socket, count: int) -> list[int]:
    """Take the descriptors that the other end sent. Raises WireClosedError if it is gone."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1, count)
    if not data:
        raise WireClosedError("the stream ended before the descriptors came")
    return list(descriptors)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            data = connection.recv(min(count - len(parts), 1 << 20))
        except ConnectionError as error:
            raise WireClosedError("the stream broke") from error
        if not data:
            raise WireClosedError("the stream ended")
        parts += data
    return bytes(parts)
