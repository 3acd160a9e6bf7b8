"""Seals the TCP sockets that this process listens on, for ranks whose network is not private.

gloo listens on the loopback interface, publishes its ports to the other ranks through the store, and has connected all
of them when the process group is made. It authenticates no peer, and listens for as long as the process group lives.
So each rank seals its listening sockets as soon as they are not needed any more: from then on the kernel drops every
packet that comes to them. They stay open, because gloo ends the process when a socket that it listens on is shut down.
Connections that came in before are checked: each must come from a socket of the same user.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from types import TracebackType

from harness.errors import HarnessError

_SO_ATTACH_FILTER = 26
# One instruction of the classic Berkeley packet filter: "return 0", keep 0 bytes of the packet.
_DROP = struct.pack("HBBI", 0x06, 0, 0, 0)
_ESTABLISHED = "01"
_MAPPED = "0000000000000000FFFF0000"
# The kernel's table is not read in one instant: a connection counts as foreign only if it stays so.
_LOOKS = 3

Table = dict[tuple[str, str], int]
"""Established TCP connections as the kernel prints them: (local address, remote address) -> uid of the local socket."""


class Seal:
    """As a context manager: seals what this process listens on when the block ends, however it ends.

    Raises HarnessError when another user's process is connected to it. ``uid``: the user of this process.
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
        """Seal what is not sealed yet, and check its connections."""
        ports = set()
        for name in os.listdir("/proc/self/fd"):
            try:
                inode = os.readlink(f"/proc/self/fd/{name}")
                if not inode.startswith("socket:") or inode in self._sealed:
                    continue
                with socket.socket(fileno=os.dup(int(name))) as candidate:
                    if _listens(candidate):
                        _drop_all(candidate)
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
    """Peers of connections to local ``ports`` that are not sockets of user ``uid``: address -> whose they are."""
    found = {}
    for local, remote in table:
        if _port(local) not in ports:
            continue
        owner = table.get((remote, local))
        if owner is None:
            found[_readable(remote)] = "not a socket of this machine and network namespace"
        elif owner != uid:
            found[_readable(remote)] = f"uid {owner}"
    return found


def _listens(candidate: socket.socket) -> bool:
    return candidate.family in (socket.AF_INET, socket.AF_INET6) and bool(
        candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )


def _drop_all(listener: socket.socket) -> None:
    code = ctypes.create_string_buffer(_DROP, len(_DROP))
    program = struct.pack("HL", 1, ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


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
    """An IPv4 address that an IPv6 socket uses, as an IPv4 socket has it."""
    return address.removeprefix(_MAPPED)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _readable(address: str) -> str:
    digits, _, _ = address.rpartition(":")
    # The kernel prints addresses as words in the byte order of the machine.
    words = struct.pack(f"={len(digits) // 8}I", *(int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)))
    family = socket.AF_INET if len(words) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, words)} port {_port(address)}"
