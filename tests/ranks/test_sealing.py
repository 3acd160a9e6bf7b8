"""Sealing: listening sockets accept no connection any more, and connections of other users are detected."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.errors import HarnessError
from harness.ranks import sealing
from tests.ranks import reach


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    if family == socket.AF_INET6 and not os.path.exists("/proc/net/tcp6"):
        pytest.skip("needs a kernel with IPv6")
    with socket.create_server((request.param, 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as made:
        made.settimeout(60)
        yield made


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def test_a_sealed_socket_takes_no_connection_and_keeps_those_it_has(listener: socket.socket) -> None:
    opened = [each for each in reach.sockets([os.getpid()]) if each.address.endswith(f" port {_port(listener)}")]
    assert len(opened) == 1
    assert reach.reachable(opened) == opened
    listener.accept()[0].close()
    with socket.create_connection(("127.0.0.1", _port(listener))) as caller, listener.accept()[0] as accepted:
        with sealing.Seal():
            pass
        assert reach.reachable(opened) == []
        caller.sendall(b"as before")
        assert accepted.recv(9) == b"as before"
    assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), "it must not be shut down: gloo polls it"


def test_a_connection_of_another_user_is_an_error(listener: socket.socket) -> None:
    with socket.create_connection(("127.0.0.1", _port(listener))) as caller, listener.accept()[0]:
        place = rf"127\.0\.0\.1 port {caller.getsockname()[1]} \(uid {os.getuid()}\)"
        with pytest.raises(HarnessError, match=place):
            sealing.Seal(os.getuid() + 1).apply()


def test_what_is_sealed_is_checked_once(listener: socket.socket) -> None:
    seal = sealing.Seal()
    seal.apply()
    with socket.socket() as caller:
        caller.setblocking(False)
        caller.connect_ex(("127.0.0.1", _port(listener)))
        seal.apply()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_real_other_user_is_found(listener: socket.socket) -> None:
    code = (
        f"import os, socket, sys; os.setgroups([]); os.setgid({reach.UNPRIVILEGED}); os.setuid({reach.UNPRIVILEGED}); "
        f"caller = socket.socket(); caller.connect(('127.0.0.1', {_port(listener)})); sys.stdin.read()"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        with listener.accept()[0], pytest.raises(HarnessError, match=rf"\(uid {reach.UNPRIVILEGED}\)"):
            sealing.Seal().apply()
    finally:
        caller.communicate(timeout=60)


def test_a_peer_without_a_socket_here_is_foreign() -> None:
    here, there = "0100007F:1F90", "0100007F:A000"
    assert sealing.strangers({(here, there): 7, (there, here): 7}, {8080}, 7) == {}
    assert sealing.strangers({(here, there): 7}, {8081}, 7) == {}
    peers = sealing.strangers({(here, there): 7}, {8080}, 7)
    assert peers == {"127.0.0.1 port 40960": "not a socket of this machine and network namespace"}
