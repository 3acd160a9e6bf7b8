"""Sockets on which processes listen, and connections to them by others: for tests of what a rank group opens."""

from __future__ import annotations

import ipaddress
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.ranks import RankGroup

UNPRIVILEGED = 65534
_LISTENING, _UNCONNECTED = "0A", "07"
_ACCEPTS = 0x10000

# Runs in the network namespace of the test, as another user where the test may become one. It reads addresses and
# prints, for each, whether a connection came about. The kernel alone answers a connection, so a second is plenty.
_CALLER = """
import json, os, select, socket, sys
uid, wanted = int(sys.argv[1]), json.load(sys.stdin)
if os.getuid() == 0:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
calls = []
for kind, address in wanted:
    family = {"unix": socket.AF_UNIX, "tcp": socket.AF_INET, "tcp6": socket.AF_INET6}[kind]
    caller = socket.socket(family, socket.SOCK_STREAM)
    caller.setblocking(False)
    target = address.replace("@", "\\0", 1) if kind == "unix" else tuple(address)
    calls.append((caller, caller.connect_ex(target)))
poll = select.poll()
for caller, error in calls:
    poll.register(caller, select.POLLOUT)
answers = []
for caller, error in calls:
    if error == 115:  # under way
        done = dict(poll.poll(1000))
        error = caller.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if caller.fileno() in done else "no answer"
    answers.append(error == 0)
print(json.dumps(answers))
"""


@dataclass(frozen=True)
class Open:
    """A socket that waits for peers. ``kind``: as in /proc/net; ``address``: "ADDRESS port PORT", or a name."""

    pid: int
    kind: str
    address: str


def processes_of(group: RankGroup) -> list[int]:
    """The controller, the keeper, and all below the keeper: agent, ranks, and what those started."""
    keeper = group._running.keeper
    assert keeper is not None, "the group was not started"
    below = psutil.Process(keeper.process.pid).children(recursive=True)
    return [os.getpid(), keeper.process.pid, *(child.pid for child in below)]


def sockets(pids: Iterable[int]) -> list[Open]:
    """Every socket of these processes that waits for peers, each in the network namespace of its process."""
    by_inode: dict[tuple[str, str], Open] = {}
    for pid in pids:
        try:
            inodes = {inode for path in Path(f"/proc/{pid}/fd").iterdir() if (inode := _inode(path))}
            waiting = list(_waiting(pid)) if inodes else []
        except FileNotFoundError:  # it has ended, and its sockets are closed
            continue
        for kind, address, inode in waiting:
            if inode in inodes:
                by_inode.setdefault((kind, inode), Open(pid, kind, address))
    return sorted(by_inode.values(), key=lambda each: (each.kind, each.address))


def reachable(opened: Iterable[Open]) -> list[Open]:
    """Those that a process outside the group can connect to: one of another user, where this one is root."""
    candidates = [each for each in opened if each.kind in ("tcp", "tcp6", "unix")]
    done = subprocess.run(
        [sys.executable, "-c", _CALLER, str(UNPRIVILEGED)],
        input=json.dumps([(each.kind, _target(each)) for each in candidates]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    connected = [each for each, answer in zip(candidates, json.loads(done.stdout), strict=True) if answer]
    # A datagram needs no connection: any process with the address can send it.
    return connected + [each for each in opened if each.kind.startswith("udp")]


def _inode(descriptor: Path) -> str:
    try:
        target = os.readlink(descriptor)
    except FileNotFoundError:  # closed meanwhile
        return ""
    return target.removeprefix("socket:[").rstrip("]") if target.startswith("socket:[") else ""


def _waiting(pid: int) -> Iterable[tuple[str, str, str]]:
    """(kind, address, inode) of all sockets in the network namespace of ``pid`` that wait for peers."""
    for kind, state in (("tcp", _LISTENING), ("tcp6", _LISTENING), ("udp", _UNCONNECTED), ("udp6", _UNCONNECTED)):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state:
                yield kind, _readable(fields[1]), fields[9]
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)
        name = fields[7] if len(fields) > 7 else ""
        if name.startswith("@") or (int(fields[3], 16) & _ACCEPTS):
            yield "unix", name, fields[6]


def _readable(address: str) -> str:
    digits, _, port = address.partition(":")
    words = [int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)]
    return f"{ipaddress.ip_address(struct.pack(f'={len(words)}I', *words))} port {int(port, 16)}"


def _target(opened: Open) -> str | tuple[str, int]:
    if opened.kind == "unix":
        return opened.address
    address, _, port = opened.address.partition(" port ")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address), int(port)
