"""The network of a rank group: a private namespace where the kernel permits one, else the loopback interface.

gloo's pairs and NCCL's proxies use TCP, also between processes of one machine, and do not authenticate their peers. In
a private network namespace no other process of the machine and no other host can reach them. The keeper enters it
before it starts other processes, so the agent, the ranks and all their children are inside. The controller is not: Unix
socket pairs, descriptors, signals and shared memory do not depend on the network namespace.

Without a namespace, gloo and NCCL are bound to the loopback interface, and ``sealing`` closes gloo's sockets to others.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

from harness.errors import UsageError

logger = logging.getLogger(__package__)

PRIVATE, LOOPBACK = "private", "loopback"
NODES = "nodes"
"""The network of a group on several nodes, see ``spanning``: it is chosen by those who start the nodes."""

VARIABLE = "IRIS_HARNESS_NETWORK"
"""Environment variable with the kind of network for groups whose caller does not choose one."""

_BOUND = {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
_BOUND_NCCL = {
    "NCCL_SOCKET_IFNAME": "lo",
    # NCCL's RAS service would listen on a fixed port of localhost and answer every user.
    "NCCL_RAS_ENABLE": "0",
}
# Variables of the caller's environment that would open more than the group needs.
_NOT_INHERITED = (
    "IRIS_HARNESS_FORK_SERVER",  # what it forks is outside the group
    "NCCL_COMM_ID",  # an address for NCCL to listen on
    "TORCHELASTIC_HEALTH_CHECK_PORT",  # elastic would listen on it
    "TORCHELASTIC_ENABLE_FILE_TIMER",  # elastic would make a named pipe in /tmp
    "TORCH_GLOO_LAZY_INIT",  # gloo would connect, and so listen, for as long as it lives
    "GLOO_DEVICE_TRANSPORT",  # the harness secures gloo's TCP transport only
)


def chosen(kind: str | None) -> str | None:
    """Return the kind of network that the caller or else the environment chooses; None: private where possible.

    Raises UsageError for a kind that does not exist.
    """
    source = "network"
    if kind is None:
        source, kind = VARIABLE, os.environ.get(VARIABLE) or None
    if kind not in (PRIVATE, LOOPBACK, NODES, None) or (kind == NODES and source == VARIABLE):
        raise UsageError(f"{source}: expected {PRIVATE!r} or {LOOPBACK!r}, got {kind!r}")
    return kind


def decide(kind: str | None, refusal: str, with_nccl: bool) -> str:
    """Return the network that a group has. ``kind``: as ``chosen``; ``refusal``: the reason why ``enter`` failed, or
    "".

    Raises UsageError if a private one was chosen and is not possible.
    """
    if kind == NODES:
        return NODES
    if kind != LOOPBACK and not refusal:
        return PRIVATE
    if kind == PRIVATE:
        raise UsageError(
            f"network: a private network is not possible here: {refusal}. Run as an ordinary user where the kernel"
            " permits user namespaces, or as root with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), or choose"
            f" {LOOPBACK!r}"
        )
    if refusal:
        logger.info("the ranks use the loopback interface: %s", refusal)
    if with_nccl:
        logger.warning("the ranks' network is not private: every user of this machine can connect to NCCL's sockets")
    return LOOPBACK


def environment(kind: str | None, with_nccl: bool, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that bind the process groups of the ranks to the loopback interface; none for NODES.

    Raises UsageError if ``given``, the caller's variables, contradict them.
    """
    if kind == NODES:
        return {}
    bound = {**_BOUND, **_BOUND_NCCL} if with_nccl else _BOUND
    for name, value in bound.items():
        if given.get(name, value) != value:
            raise UsageError(f"environment: {name} must be {value!r} for the ranks of one machine, got {given[name]!r}")
    return dict(bound)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the caller's environment that the processes of a group inherit."""
    return {name: value for name, value in environment.items() if name not in _NOT_INHERITED}


def uses_nccl(options: Mapping[str, Any]) -> bool:
    """Return whether a rank group with these options has a process group that uses NCCL (or RCCL)."""
    return "nccl" in str(options.get("backend", "gloo"))


_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_INTERFACE = struct.Struct("16sH14x")
_CAPABILITIES_VERSION = 0x20080522
_CAP_SYS_ADMIN = 21


def enter() -> str:
    """Move this process and its later children to a new network namespace with a loopback interface.

    Returns "", or the reason why that is not possible; nothing has changed then. The process must have one thread.

    An ordinary user needs a user namespace for it. That namespace maps the user and the group to themselves, and this
    process drops the capabilities that come with it, so access to files stays as before. Root without CAP_SYS_ADMIN, as
    in many containers, gets no user namespace: in one, root would lose its access to files of other users.
    """
    # A kernel may refuse half-way, so a child tries first.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _try(write)
    os.close(write)
    with open(read, encoding="utf-8", errors="replace") as pipe:
        reason = pipe.read()
    os.waitpid(child, 0)
    if reason == "":
        raise RuntimeError("the process that tried to create a network namespace ended without an answer")
    if reason != _ENTERED:
        return reason
    _enter()
    return ""


_ENTERED = "entered"


def _try(pipe: int) -> NoReturn:
    try:
        _enter()
        text = _ENTERED
    except BaseException as error:  # noqa: BLE001 (the parent reports it)
        text = str(error) or type(error).__name__
    os.write(pipe, text.encode())
    os._exit(0)


def _enter() -> None:
    uid, gid = os.geteuid(), os.getegid()
    if _may_administrate():
        _unshare(_CLONE_NEWNET)
        _raise_loopback()
        return
    if uid == 0:
        raise OSError("this process is root without the capability CAP_SYS_ADMIN")
    if (uid, gid) != (os.getuid(), os.getgid()):
        raise OSError("real and effective user or group differ")
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _raise_loopback()
    _drop_capabilities()


def _may_administrate() -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        names = "a user and a network namespace" if flags & _CLONE_NEWUSER else "a network namespace"
        raise OSError(f"the kernel refused {names}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())  # in one piece, as the kernel demands
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OSError(f"the kernel refused {text!r} in {path}: {error.strerror}") from error


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _INTERFACE.pack(b"lo", 0))
            _, flags = _INTERFACE.unpack(answer)
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _INTERFACE.pack(b"lo", flags | _IFF_UP))
        except OSError as error:
            raise OSError(f"the loopback interface of a new namespace cannot be used: {error.strerror}") from error


def _drop_capabilities() -> None:
    """Drop all capabilities: with them a process could write to read-only folders of its user."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(f"capset: {os.strerror(ctypes.get_errno())}")
