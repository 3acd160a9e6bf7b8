"""Connections of machines, by a key that both sides prove to have."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from harness.errors import UsageError
from harness.ranks import meeting, wire

KEY = b"a key of all machines"


def free_endpoint() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


class First:
    """The first machine, in a thread."""

    def __init__(self, nodes: int = 2, limit: float = 10.0) -> None:
        self.endpoint = free_endpoint()
        self.result: Any = None
        self._thread = threading.Thread(target=self._meet, args=(nodes, limit))
        self._thread.start()

    def _meet(self, nodes: int, limit: float) -> None:
        try:
            self.result = meeting.Meeting(self.endpoint, nodes, KEY, lambda line: None, limit)
        except UsageError as error:
            self.result = error

    def ended(self) -> Any:
        self._thread.join(20.0)
        return self.result


def test_machines_with_the_key_join_in_the_order_of_their_numbers() -> None:
    first = First(nodes=3)
    ends = [meeting.join(first.endpoint, number, KEY) for number in (2, 1)]
    links = first.ended().links
    assert [link.name.partition(" (")[0] for link in links] == ["node 1", "node 2"]
    ends[1].sendall(b"1")
    assert links[0].connection.recv(1) == b"1"
    for end in [*ends, *(link.connection for link in links)]:
        end.close()


def strange(endpoint: str) -> None:
    """Connect as soon as the first machine listens, send 64 invalid bytes, and wait until it closes the connection."""
    host, port = meeting.parse_endpoint(endpoint)
    while True:
        try:
            with socket.create_connection((host, port), 5.0) as connection:
                connection.sendall(b"\xff" * 64)
                while connection.recv(4096):
                    pass
            return
        except ConnectionRefusedError:
            continue
        except OSError:
            return


def with_another_key(endpoint: str) -> None:
    with pytest.raises(UsageError, match="refused node 1"):
        meeting.join(endpoint, 1, b"another key of machines")


def with_another_number(endpoint: str) -> None:
    with pytest.raises(UsageError, match="refused node 7"):
        meeting.join(endpoint, 7, KEY)


@pytest.mark.parametrize("intruder", [strange, with_another_key, with_another_number])
def test_others_are_refused_and_the_right_one_still_joins(intruder: Callable[[str], None]) -> None:
    first = First()
    intruder(first.endpoint)
    end = meeting.join(first.endpoint, 1, KEY, limit=5.0)
    [link] = first.ended().links
    end.close()
    link.connection.close()


def test_a_first_machine_without_the_key_is_refused() -> None:
    """Otherwise a process that answers at the endpoint could run any code on this machine."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pretend() -> None:
        connection, _ = listener.accept()
        wire.send(connection, ["challenge", b"0" * 32])
        wire.receive(connection)
        wire.send(connection, [b"0" * 32])
        connection.close()

    thread = threading.Thread(target=pretend)
    thread.start()
    with listener, pytest.raises(UsageError, match="it has another key"):
        meeting.join(f"127.0.0.1:{listener.getsockname()[1]}", 1, KEY)
    thread.join(10.0)


def test_missing_machines_are_named() -> None:
    first = First(nodes=3, limit=0.5)
    assert str(first.ended()) == f"nodes [1, 2] did not join at {first.endpoint} within 0.5 s"


def test_no_machine_at_the_endpoint() -> None:
    with pytest.raises(UsageError, match="no machine answers at"):
        meeting.join(free_endpoint(), 1, KEY, limit=0.1)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "a b:1", "host:1:2", "-x:80"])
def test_wrong_endpoints(text: str) -> None:
    with pytest.raises(UsageError, match="--endpoint: expected HOST:PORT"):
        meeting.parse_endpoint(text)


def test_endpoints() -> None:
    assert meeting.parse_endpoint("node-1.cluster:29400") == ("node-1.cluster", 29400)
    assert meeting.parse_endpoint("[fe80::1]:80") == ("fe80::1", 80)


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(meeting.KEY, "short")
    with pytest.raises(UsageError, match="at least 16 characters, the same on all machines, got 5; make one with"):
        meeting.key()
    monkeypatch.setenv(meeting.KEY, "long enough, 17 c")
    assert meeting.key() == b"long enough, 17 c"


def test_the_number_of_a_machine() -> None:
    assert meeting.node_number(2, {"SLURM_PROCID": "1"}) == 2
    assert meeting.node_number(None, {"SLURM_PROCID": "1"}) == 1
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "GROUP_RANK": "3", "SLURM_PROCID": "0"}
    assert meeting.node_number(None, torchrun) == 3, "torchrun below srun"
    with pytest.raises(UsageError, match="--node-rank: expected the number of this machine"):
        meeting.node_number(None, {})
