"""File descriptors between the ranks of one host, as memory handles travel: Unix stream sockets and SCM_RIGHTS.

connections = setup_fd_infrastructure(rank, num_ranks)      # collective; {peer: socket}, None for a single rank
received = exchange_fd(connections, rank, handle, payload)  # {peer: (descriptor, payload)}
close_connections(connections)

Each call of ``setup_fd_infrastructure`` listens at an address of its own, in a directory that only this user can enter
and that is gone when the call returns, so that instances which follow or overlap one another never connect. Addresses
travel by torch.distributed's key-value store, not by a collective: nothing here can interleave with the caller's own.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
import tempfile
import time
from collections.abc import Iterator

import torch.distributed as dist

__all__ = [
    "CONNECT_LIMIT_S",
    "TRANSFER_LIMIT_S",
    "close_connections",
    "exchange_fd",
    "managed_fd",
    "recv_fd",
    "send_fd",
    "setup_fd_infrastructure",
]

CONNECT_LIMIT_S = 10.0
"""Seconds to connect all pairs, counted from when the last rank has arrived."""

TRANSFER_LIMIT_S = 60.0
"""Seconds that one send or receive on a connection waits for the other rank; TimeoutError after that."""

_RANK = struct.Struct("<I")
_ROOM_FOR_FDS = 8


class OtherEndClosedError(RuntimeError):
    """The other end closed the connection: it has had an error of its own, or its process ended."""


def send_fd(sock: socket.socket, fd: int, payload: bytes = b"\0") -> None:
    """Send a duplicate of ``fd`` with ``payload``, which is at least one byte: a stream carries no message of none.

    Raises:
        ValueError: the descriptor is negative, or the payload empty.
        OSError: the descriptor is not open, or the other end is.
    """
    if fd < 0:
        raise ValueError(f"a file descriptor must not be negative, got {fd}")
    if not payload:
        raise ValueError("the payload sent with a file descriptor must be at least one byte, got none")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    sent = sock.sendmsg([payload], rights)
    while sent < len(payload):
        sent += sock.send(memoryview(payload)[sent:])


def recv_fd(sock: socket.socket, payload_size: int = 1) -> tuple[int, bytes]:
    """The descriptor (close-on-exec, the caller closes it) and the payload of one ``send_fd``.

    Raises:
        ValueError: ``payload_size`` is not positive.
        RuntimeError: no descriptor came, or several, or the other end closed before all was there.
    """
    if payload_size < 1:
        raise ValueError(f"payload_size must be at least 1, got {payload_size}")
    room = socket.CMSG_SPACE(_ROOM_FOR_FDS * array.array("i").itemsize)
    payload, messages, flags, _ = sock.recvmsg(payload_size, room, socket.MSG_CMSG_CLOEXEC)
    with contextlib.ExitStack() as received:
        fds = _descriptors(messages)
        for fd in fds:
            received.callback(os.close, fd)
        if not payload:
            raise OtherEndClosedError("no file descriptor came: the other end closed the connection")
        if len(fds) != 1 or flags & socket.MSG_CTRUNC:
            raise RuntimeError(f"{len(fds) or 'no'} file descriptors came with {len(payload)} bytes, expected one")
        payload += _receive(sock, payload_size - len(payload))
        received.pop_all()
    return fds[0], payload


@contextlib.contextmanager
def managed_fd(fd: int) -> Iterator[int]:
    """``with managed_fd(fd) as fd``: closes it at the end, whatever happens."""
    try:
        yield fd
    finally:
        os.close(fd)


def setup_fd_infrastructure(rank: int, world: int) -> dict[int, socket.socket] | None:
    """Connect every pair of ranks of the default group: ``{peer: socket}``, None for a single rank. Collective.

    The lower rank of a pair listens, the higher one connects and sends its rank as 4 little-endian bytes. The
    caller closes the sockets (``close_connections``); their operations wait ``TRANSFER_LIMIT_S``. Ranks are waited for
    as long as the store's own timeout.

    Raises, on each rank where it went wrong, and RuntimeError naming those ranks on the others:
        RuntimeError: torch.distributed is not initialised (on that rank alone), or another process connected.
        ValueError: ``rank`` and ``world`` are not those of the default group.
        FileNotFoundError: a rank's socket is not there: it runs on another host or in another container.
        TimeoutError: a rank did not connect within ``CONNECT_LIMIT_S``.
    """
    if world == 1:
        return None
    meeting = _Meeting()
    connections: dict[int, socket.socket] = {}
    error: Exception | None = None
    try:
        with contextlib.ExitStack() as listening:
            address = ""
            try:
                meeting.check(rank, world)
                listener, address = _listen(listening, world)
            except (OSError, ValueError) as failure:
                error = failure
            addresses = meeting.exchange("address", address)
            if all(addresses):
                try:
                    _connect(connections, addresses, listener, rank, world)
                except (OSError, RuntimeError) as failure:
                    error = failure
            outcomes = meeting.exchange("outcome", f"{type(error).__name__}: {error}" if error else "")
        failed = [f"rank {peer}: {text}" for peer, text in enumerate(outcomes) if text]
        if failed:
            raise error or RuntimeError(f"connecting the ranks failed: {'; '.join(failed)}")
    except BaseException:
        close_connections(connections)
        raise
    return connections


def exchange_fd(
    connections: dict[int, socket.socket], rank: int, fd: int, payload: bytes = b"\0"
) -> dict[int, tuple[int, bytes]]:
    """Every connected rank gets this one's descriptor and payload: ``{peer: (descriptor, payload)}`` of theirs.

    Collective over the connected ranks; payloads have the same length everywhere. Of a pair the higher rank sends
    first. The caller closes the descriptors. Raises as ``send_fd`` and ``recv_fd`` do, or TimeoutError; then none is
    left open, and all connections are closed, which is how the other ranks learn of it at once.
    """
    received: dict[int, tuple[int, bytes]] = {}
    try:
        # In the same order on both sides of every pair. What one rank is ahead waits in the socket's buffer.
        for peer, sock in sorted(connections.items()):
            if rank > peer:
                send_fd(sock, fd, payload)
                received[peer] = recv_fd(sock, len(payload))
            else:
                received[peer] = recv_fd(sock, len(payload))
                send_fd(sock, fd, payload)
    except BaseException:
        close_connections(connections)
        for descriptor, _ in received.values():
            os.close(descriptor)
        raise
    return received


def close_connections(connections: dict[int, socket.socket] | None) -> None:
    """Close the connections and empty the dict. Idempotent, not collective."""
    while connections:
        connections.popitem()[1].close()


class _Meeting:
    """One call of ``setup_fd_infrastructure``, distinguished from earlier ones by a count per rank."""

    def __init__(self) -> None:
        if not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialised: call init_process_group first")
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._store = dist.distributed_c10d._get_default_store()
        self._name = f"iris/fd/{self._store.add(f'iris/fd/calls/{self._rank}', 1)}"

    def check(self, rank: int, world: int) -> None:
        if (rank, world) != (self._rank, self._world):
            raise ValueError(f"rank {rank} of {world} is not this process, rank {self._rank} of {self._world}")

    def exchange(self, key: str, text: str) -> list[str]:
        """Publish this rank's text under ``key``; return each rank's, in the order of the ranks."""
        self._store.set(f"{self._name}/{key}/{self._rank}", text)
        return [self._store.get(f"{self._name}/{key}/{peer}").decode() for peer in range(self._world)]


def _listen(listening: contextlib.ExitStack, world: int) -> tuple[socket.socket, str]:
    """A listening socket and its path; both are gone with the stack.

    Removed by name: TemporaryDirectory opens what it removes, which fails where no further file may be opened.
    """
    directory = tempfile.mkdtemp(prefix="iris-fd-")
    listening.callback(os.rmdir, directory)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.callback(listener.close)
    path = os.path.join(directory, "socket")
    with _short(path) as short:
        listener.bind(short)
        listening.callback(os.unlink, path)
    listener.listen(world)
    return listener, path


def _connect(
    connections: dict[int, socket.socket], addresses: list[str], listener: socket.socket, rank: int, world: int
) -> None:
    deadline = time.monotonic() + CONNECT_LIMIT_S
    for peer in range(rank):
        connections[peer] = sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(TRANSFER_LIMIT_S)
        try:
            with _short(addresses[peer]) as path:
                sock.connect(path)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"the socket of rank {peer}, {addresses[peer]}, is not there: ranks must share a host"
            ) from None
        sock.sendall(_RANK.pack(rank))
    while len(connections) < world - 1:
        waiting = sorted(set(range(world)) - set(connections) - {rank})
        listener.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            raise TimeoutError(f"ranks {waiting} did not connect within {CONNECT_LIMIT_S:g} s") from None
        with contextlib.ExitStack() as refused:
            refused.callback(sock.close)
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            (peer,) = _RANK.unpack(_receive(sock, _RANK.size))
            if peer not in waiting:
                raise RuntimeError(f"rank {peer} connected where ranks {waiting} were awaited")
            refused.pop_all()
        sock.settimeout(TRANSFER_LIMIT_S)
        connections[peer] = sock


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """Another name of ``path`` that fits a socket's address (107 bytes), however deep the temporary directory lies."""
    directory, name = os.path.split(path)
    with managed_fd(os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        yield f"/proc/self/fd/{fd}/{name}"


def _receive(sock: socket.socket, size: int) -> bytes:
    """Exactly ``size`` bytes; RuntimeError if the other end closes before."""
    received = b""
    while len(received) < size:
        more = sock.recv(size - len(received))
        if not more:
            raise OtherEndClosedError(f"the connection closed {size - len(received)} bytes too early")
        received += more
    return received


def _descriptors(messages: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in messages:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()
