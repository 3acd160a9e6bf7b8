"""Sealing of the TCP sockets on which this process listens, for ranks whose network is not private.

gloo listens on the loopback interface, publishes its ports to the other ranks through the store, and has connected all
ranks when the process group is ready. It authenticates no peer, and listens as long as the process group lives.
So each rank seals its listening sockets as soon as they are not needed any more: it binds them to a network interface
that does not exist, so the kernel refuses every connection to them. They stay open, because gloo ends the process when
one of its listening sockets is shut down.
Earlier connections are checked: each must come from a socket of the same user.
"""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType

from harness.errors import HarnessError

_SO_BINDTOIFINDEX = 62
_NO_INTERFACE = 0x7FFFFFFF  # the highest index: the kernel counts up from 1, and accepts an unused index
_ESTABLISHED = "01"
_MAPPED = "0000000000000000FFFF0000"
# The kernel's table is not read in one instant: a connection counts as foreign only if it stays so.
_LOOKS = 3

Table = dict[tuple[str, str], int]
"""Established TCP connections as the kernel prints them: (local address, remote address) -> uid of the local socket."""


class Seal:
    """Context manager that seals the listening sockets of this process when the block ends, in whatever way.

    Raises HarnessError if another user's process is connected to one. ``uid``: the user of this process.
    """

    def __init__(self, uid: int | None = None) -> None:
        self._uid = os.getuid() if uid is None else uid
        self._sealed: set[str] = set()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.apply()

    def apply(self) -> None:
        """Seal the listening sockets that are not sealed yet, and check their connections."""
        ports = set()
        for name in os.listdir("/proc/self/fd"):
            try:
                inode = os.readlink(f"/proc/self/fd/{name}")
                if not inode.startswith("socket:") or inode in self._sealed:
                    continue
                with socket.socket(fileno=os.dup(int(name))) as candidate:
                    if _listens(candidate):
                        _unbind(candidate)
                        ports.add(candidate.getsockname()[1])
                        self._sealed.add(inode)
            except OSError:
                continue  # another thread has closed it
        if ports:
            self._check(ports)

    def _check(self, ports: set[int]) -> None:
        foreign: dict[str, str] = {}
        for _ in range(_LOOKS):
            foreign = strangers(_connections(), ports, self._uid)
            if not foreign:
                return
        parts = [f"{address} ({owner})" for address, owner in sorted(foreign.items())]
        raise HarnessError(
            f"foreign connections to this rank's TCP sockets: {', '.join(parts)}; expected connections of uid"
            f" {self._uid} only. Results of this group cannot be trusted: find out which process that is, or run where"
            " the kernel permits network namespaces"
        )


def strangers(table: Table, ports: set[int], uid: int) -> dict[str, str]:
    """Return the peers of connections to local ``ports`` that are not sockets of user ``uid``: address -> owner."""
    peers = {}
    for local, remote in table:
        if _port(local) not in ports:
            continue
        owner = table.get((remote, local))
        if owner is None:
            peers[_readable(remote)] = "not a socket of this machine and network namespace"
        elif owner != uid:
            peers[_readable(remote)] = f"uid {owner}"
    return peers


def _listens(candidate: socket.socket) -> bool:
    return candidate.family in (socket.AF_INET, socket.AF_INET6) and bool(
        candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )


def _unbind(listener: socket.socket) -> None:
    """Bind ``listener`` to an interface that does not exist; every user may do that, once for each socket."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, _NO_INTERFACE)
    except OSError as error:
        raise HarnessError(
            f"a TCP socket that this rank listens on cannot be sealed: {error.strerror}; other users could connect to"
            " it: run where the kernel permits network namespaces"
        ) from error


def _connections() -> Table:
    table: Table = {}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except FileNotFoundError:
            continue  # a kernel without IPv6
        for row in rows:
            if row[3] == _ESTABLISHED:
                table[_plain(row[1]), _plain(row[2])] = int(row[7])
    return table


def _plain(address: str) -> str:
    """Return an IPv4-mapped IPv6 address as the IPv4 address; other addresses unchanged."""
    return address.removeprefix(_MAPPED)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _readable(address: str) -> str:
    digits, _, _ = address.rpartition(":")
    # The kernel prints addresses as words in the byte order of the machine.
    words = struct.pack(f"={len(digits) // 8}I", *(int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)))
    family = socket.AF_INET if len(words) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, words)} port {_port(address)}"
