"""Connections between the machines of a group on several nodes: all connect to the first one.

The first listens at an address that the command lines of all have, its *endpoint*. A process that connects there could
have the controller believe any result, and one that answers there could run any code on the other machines. So both
sides prove that they have the same key, the text in the environment variable IRIS_HARNESS_KEY, before either reads more
than a few bytes of the other: each answers a random challenge with its HMAC-SHA-256 under the key. What follows is
neither encrypted nor authenticated, see ``spanning``.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import UsageError
from harness.ranks import wire
from harness.ranks.spanning import Link

logger = logging.getLogger(__package__)

KEY = "IRIS_HARNESS_KEY"
"""Environment variable with the key of a group on several machines."""

LEAST_KEY = 16
JOIN_LIMIT = 300.0
"""Seconds in which all machines have to join."""

_HANDSHAKE_LIMIT = 10.0
_MOST_OF_HANDSHAKE = 1024
_LAP = 0.5
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


class Strange(Exception):  # noqa: N818 (not an error of this process)
    """The other end of a connection is not a machine of this group; the text has the reason."""


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT", with an IPv6 address in brackets. UsageError for another text."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise UsageError(f"--endpoint: expected HOST:PORT, such as node-1:29400, got {text!r:.100}")
    return match["host"].strip("[]"), int(match["port"])


def key() -> bytes:
    """Return the key in the environment. UsageError if there is none, or a short one."""
    text = os.environ.get(KEY, "")
    if len(text) < LEAST_KEY:
        raise UsageError(
            f"{KEY}: expected a secret of at least {LEAST_KEY} characters, the same on all machines, got {len(text)};"
            f" make one with: export {KEY}=$(openssl rand -hex 32)"
        )
    return text.encode()


def node_number(given: int | None, environment: Mapping[str, str]) -> int:
    """Return the number of this machine among the nodes: ``given``, or that of the torchrun or srun that started this
    process. UsageError if there is none."""
    names = ("GROUP_RANK",) if "TORCHELASTIC_RUN_ID" in environment else ("SLURM_PROCID",)
    texts = [str(given)] if given is not None else [environment[name] for name in names if name in environment]
    if not texts or not texts[0].isdecimal():
        raise UsageError(
            "--node-rank: expected the number of this machine, 0 for the one at the endpoint; it is known by itself"
            " where torchrun or srun has started this command"
        )
    return int(texts[0])


class Meeting:
    """The first machine's end: listens at ``endpoint`` until the others, numbers 1 to ``nodes`` - 1, have joined.

    UsageError if it cannot listen there, or not all join within ``limit`` seconds; ``report(line)`` is called for what
    a person waits for. ``links``: the connections in the order of the numbers.
    """

    def __init__(
        self, endpoint: str, nodes: int, secret: bytes, report: Callable[[str], None], limit: float = JOIN_LIMIT
    ) -> None:
        self.host, port = parse_endpoint(endpoint)
        joined: dict[int, Link] = {}
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listener = socket.create_server((self.host, port), family=family, backlog=nodes)
        except OSError as error:
            raise UsageError(f"--endpoint: this machine cannot listen at {endpoint}: {error.strerror}") from error
        end = time.monotonic() + limit
        try:
            with listener:
                listener.settimeout(_LAP)
                while missing := [number for number in range(1, nodes) if number not in joined]:
                    if time.monotonic() > end:
                        raise UsageError(f"nodes {missing} did not join at {endpoint} within {limit:g} s")
                    if not joined and end - time.monotonic() > limit - _LAP:
                        report(f"waiting at {endpoint} for nodes {', '.join(map(str, missing))}")
                    with contextlib.suppress(TimeoutError):
                        connection, address = listener.accept()
                        self._admit(connection, str(address[0]), secret, joined, nodes)
        except BaseException:
            for link in joined.values():
                link.connection.close()
            raise
        self.links = [link for _, link in sorted(joined.items())]

    def _admit(
        self, connection: socket.socket, address: str, secret: bytes, joined: dict[int, Link], nodes: int
    ) -> None:
        try:
            number, name = _challenge(connection, secret, set(range(1, nodes)) - set(joined))
        except (Strange, OSError, wire.WireClosedError, wire.FrameError) as error:
            logger.warning("a connection from %s was refused: %s", address, error)
            connection.close()
            return
        joined[number] = Link(f"node {number} ({name})", connection)


def join(endpoint: str, number: int, secret: bytes, limit: float = JOIN_LIMIT) -> socket.socket:
    """Return a connection to the first machine, as node ``number``; it may begin to listen after this call.

    UsageError if that fails within ``limit`` seconds, or the first machine has another key or refuses the number.
    """
    address = parse_endpoint(endpoint)
    end = time.monotonic() + limit
    while True:
        try:
            connection = socket.create_connection(address, timeout=_HANDSHAKE_LIMIT)
            break
        except OSError as error:
            if time.monotonic() > end:
                raise UsageError(f"--endpoint: no machine answers at {endpoint}: {error.strerror or error}") from error
            time.sleep(_LAP)
    try:
        _answer(connection, secret, number)
    except (Strange, OSError, wire.WireClosedError, wire.FrameError) as error:
        connection.close()
        raise UsageError(
            f"--endpoint: {endpoint} refused node {number} ({error}): it needs the same {KEY}, and another number than"
            " every other node"
        ) from error
    connection.settimeout(None)
    return connection


def _challenge(connection: socket.socket, secret: bytes, free: set[int]) -> tuple[int, str]:
    """Return number and host name of a machine that has proved that it has the key; see ``_answer``.

    Raises Strange if it has not, or its number is not one of ``free``.
    """
    connection.settimeout(_HANDSHAKE_LIMIT)
    ours = secrets.token_bytes(32)
    wire.send(connection, ["challenge", ours])
    message = wire.receive(connection, _MOST_OF_HANDSHAKE)
    if not isinstance(message, list) or [type(part) for part in message] != [bytes, bytes, int, str]:
        raise Strange("its answer is not one of a node")
    proof, theirs, number, name = message
    if not hmac.compare_digest(proof, _proof(secret, "node", ours, number)):
        raise Strange("it has another key")
    if number not in free:
        raise Strange(f"it wants to be node {number}, and free are {sorted(free)}")
    wire.send(connection, [_proof(secret, "first", theirs, number)])
    return number, name if name.isprintable() else "?"


def _answer(connection: socket.socket, secret: bytes, number: int) -> None:
    """Prove to the first machine that this one has the key, and have it prove the same. Raises Strange otherwise."""
    message = wire.receive(connection, _MOST_OF_HANDSHAKE)
    if not isinstance(message, list) or len(message) != 2 or type(message[1]) is not bytes:
        raise Strange("its challenge is not one")
    theirs = secrets.token_bytes(32)
    wire.send(connection, [_proof(secret, "node", message[1], number), theirs, number, socket.gethostname()[:64]])
    reply: Any = wire.receive(connection, _MOST_OF_HANDSHAKE)
    expected = _proof(secret, "first", theirs, number)
    if not isinstance(reply, list) or len(reply) != 1 or type(reply[0]) is not bytes:
        raise Strange("its reply is not one")
    if not hmac.compare_digest(reply[0], expected):
        raise Strange("it has another key")


def _proof(secret: bytes, role: str, challenge: bytes, number: int) -> bytes:
    return hmac.digest(secret, f"iris-harness {role} {number} ".encode() + challenge, "sha256")
