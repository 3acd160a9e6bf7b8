"""send_fd, recv_fd, managed_fd, setup_fd_infrastructure: every pair of ranks exchanges descriptors with a payload.

A received descriptor refers to the sender's file: each rank writes into every peer's file at its own offset, and then
reads the peers' values in its own file. Several sets of connections can be open at the same time, and no descriptor
stays open.
"""

import contextlib
import os
import socket
import threading
import time

from conformance.distributed.modules import module_of
from conformance.support.cases import HostCase, alike
from fixtures.findings import Findings
from fixtures.requirement import requirement

MORE_THAN_A_BUFFER = 500_000
"""More bytes than a socket accepts at once."""


def run(env, case):
    sets, payload_size = case.arguments
    findings, me = Findings(env.rank), env.rank
    passing = module_of(env, "host.distributed.fd_passing")
    before = _descriptors()
    env.settle()
    env.late(case.late, case.late_ms)
    connections = [passing.setup_fd_infrastructure(me, env.world_size) for _ in range(sets)]
    for turn, peers in enumerate(connections):
        findings.equal(
            f"peers in set {turn}", sorted(peers or {}), [rank for rank in range(env.world_size) if rank != me]
        )
        with passing.managed_fd(os.memfd_create("conformance")) as own, contextlib.ExitStack() as received:
            os.ftruncate(own, 8 * env.world_size)
            theirs = {}
            for peer, sock in sorted((peers or {}).items()):
                fd, payload = _exchange(passing, sock, own, _payload(me, turn, payload_size), first=me > peer)
                theirs[peer] = received.enter_context(passing.managed_fd(fd))
                findings.equal(f"payload of rank {peer} in set {turn}", payload, _payload(peer, turn, payload_size))
                findings.true("a received descriptor is closed on exec", not os.get_inheritable(fd))
                os.pwrite(fd, b"%4d%4d" % (me, turn), 8 * me)
            env.settle()
            for peer in theirs:
                findings.equal(
                    f"value that rank {peer} wrote in set {turn}", os.pread(own, 8, 8 * peer), b"%4d%4d" % (peer, turn)
                )
            env.settle()
    for peers in connections:
        for sock in (peers or {}).values():
            sock.close()
    findings.equal("number of descriptors that stayed open", _descriptors() - before, 0)
    return findings.first


def _exchange(passing, sock, fd, payload, *, first):
    """Exchange descriptors with a peer. With ``first``, as on the higher rank of a pair, send before receiving."""
    if first:
        passing.send_fd(sock, fd, payload)
    got = passing.recv_fd(sock, len(payload))
    if not first:
        passing.send_fd(sock, fd, payload)
    return got


def _payload(rank, turn, size):
    start, period = (7 * rank + 31 * turn) % 251, bytes(range(251))
    return (period * (size // 251 + 2))[start : start + size]


def _descriptors():
    return len(os.listdir("/proc/self/fd"))


def cases(ranks):
    from hypothesis import strategies as st

    sizes = st.sampled_from([1, 24, 8, 4095, 60_000, MORE_THAN_A_BUFFER])
    return st.builds(
        HostCase,
        what=st.just("descriptors"),
        arguments=st.tuples(st.integers(1, 3), sizes),
        late=st.integers(-1, ranks - 1),
        late_ms=st.just(20),
    )


@requirement("DIST-FD-001", cases=cases, weight=0.25)
def test_descriptors(check, case):
    check(run, case)


def run_errors(env, case):
    findings, passing = Findings(env.rank), module_of(env, "host.distributed.fd_passing")
    findings.equal("connections of a single rank", passing.setup_fd_infrastructure(0, 1), None)
    before = _descriptors()
    left, right = socket.socketpair()
    with left, right:
        findings.raises("a negative descriptor", ValueError, lambda: passing.send_fd(left, -1), says="-1")
        left.sendall(b"x")
        findings.raises("a message without a descriptor", RuntimeError, lambda: passing.recv_fd(right))
        passing.send_fd(left, 0)
        fd, payload = passing.recv_fd(right)
        findings.equal("payload of a message without payload", payload, b"\0")
        os.close(fd)
        left.close()
        findings.raises("receiving from a closed connection", RuntimeError, lambda: passing.recv_fd(right))
    findings.raises("an error inside managed_fd", KeyError, lambda: _raise_inside(passing))
    findings.equal("number of descriptors that stayed open", _descriptors() - before, 0)
    if not any(case.arguments):
        wrong = env.world_size if env.rank == 0 else env.rank
        findings.raises(
            "a wrong rank argument on rank 0",
            (ValueError, RuntimeError),
            lambda: passing.setup_fd_infrastructure(wrong, env.world_size),
        )
        _check_limit(env, findings, passing)
    env.settle()
    return findings.first


SHORT_S, LATE_S = 0.1, 3.0
"""A limit of seconds to wait for another rank, and the seconds after which the connection is shut down."""


def _check_limit(env, findings, passing):
    """Check that both ends of a connection wait ``TRANSFER_LIMIT_S`` for a rank that does not receive or send."""
    limits = (passing.CONNECT_LIMIT_S, passing.TRANSFER_LIMIT_S)
    findings.equal("CONNECT_LIMIT_S and TRANSFER_LIMIT_S", limits, (10.0, 60.0))
    passing.TRANSFER_LIMIT_S = SHORT_S
    try:
        connections = passing.setup_fd_infrastructure(env.rank, env.world_size)
        for label, act in (
            ("a receive from", passing.recv_fd),
            ("a send to", lambda sock: passing.send_fd(sock, 0, bytes(MORE_THAN_A_BUFFER))),
        ):
            env.settle()
            for peer in {min(connections), max(connections)}:
                sock, start = connections[peer], time.monotonic()
                shutdown = threading.Timer(LATE_S, sock.shutdown, (socket.SHUT_RDWR,))
                shutdown.start()
                findings.raises(
                    f"{label} rank {peer}, limited to {SHORT_S} s", TimeoutError, lambda act=act, sock=sock: act(sock)
                )
                shutdown.cancel()
                waited = time.monotonic() - start
                findings.true(f"{label} rank {peer} waited {waited:.2f} s of {SHORT_S} s", waited > 0.9 * SHORT_S)
            env.settle()
        passing.close_connections(connections)
    finally:
        passing.TRANSFER_LIMIT_S = limits[1]


def _raise_inside(passing):
    with passing.managed_fd(os.memfd_create("conformance")):
        raise KeyError


@requirement("DIST-FD-002", cases=lambda ranks: [HostCase("errors", alike())], ranks=2)
def test_errors(check, case):
    check(run_errors, case)


def run_exchange(env, case):
    """Check exchange_fd, which exchanges between all pairs in one call.

    A bad descriptor on one rank is an error on every rank and closes all connections.
    """
    findings, me = Findings(env.rank), env.rank
    passing = module_of(env, "host.distributed.fd_passing")
    before = _descriptors()
    connections = passing.setup_fd_infrastructure(me, env.world_size) or {}
    with passing.managed_fd(os.memfd_create("conformance")) as own:
        os.pwrite(own, b"rank%4d" % me, 0)
        received = passing.exchange_fd(connections, me, own, _payload(me, 0, MORE_THAN_A_BUFFER))
        findings.equal(
            "ranks from which a descriptor was received",
            sorted(received),
            [peer for peer in range(env.world_size) if peer != me],
        )
        for peer, (fd, payload) in received.items():
            with passing.managed_fd(fd):
                findings.equal(f"file of rank {peer}", os.pread(fd, 8, 0), b"rank%4d" % peer)
            findings.true(f"payload of rank {peer}", payload == _payload(peer, 0, MORE_THAN_A_BUFFER))
        bad = -1 if me == 0 else own
        kinds = ValueError if me == 0 else (RuntimeError, OSError)
        if env.world_size > 1:
            findings.raises(
                "an exchange with rank 0's -1", kinds, lambda: passing.exchange_fd(connections, me, bad, b"24 bytes")
            )
            findings.equal("connections after a failed exchange", connections, {})
    passing.close_connections(connections)
    passing.close_connections(connections)
    passing.close_connections(None)
    findings.equal("connections after close_connections()", connections, {})
    findings.equal("number of descriptors that stayed open", _descriptors() - before, 0)
    env.settle()
    return findings.first


@requirement("DIST-FD-003", cases=lambda ranks: [HostCase("exchange")])
def test_exchange(check, case):
    check(run_exchange, case)
