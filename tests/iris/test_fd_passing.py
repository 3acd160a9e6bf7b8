"""Descriptors over sockets, within one process. Between ranks: test_distributed.py and conformance/distributed."""

from __future__ import annotations

import array
import os
import socket

import pytest

from iris_under_test.host.distributed import fd_passing
from iris_under_test.host.distributed.fd_passing import exchange_fd, managed_fd, recv_fd, send_fd


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    with left, right:
        left.settimeout(5)
        right.settimeout(5)
        yield left, right


@pytest.fixture(autouse=True)
def _nothing_left_open():
    before = set(os.listdir("/proc/self/fd"))
    yield
    left = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in set(os.listdir("/proc/self/fd")) - before if _open(fd)}
    assert not left


def _open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def memory(text: bytes) -> int:
    fd = os.memfd_create("fd-passing", os.MFD_CLOEXEC)
    os.write(fd, text)
    return fd


def send_raw(sock: socket.socket, fds: list[int], payload: bytes) -> None:
    sock.sendmsg([payload], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def test_a_descriptor_arrives_as_another_of_the_same_file(pair):
    left, right = pair
    with managed_fd(memory(b"hello")) as fd:
        send_fd(left, fd)
        got, payload = recv_fd(right)
        with managed_fd(got):
            assert payload == b"\0"
            assert got != fd
            assert os.pread(got, 9, 0) == b"hello"
            assert not os.get_inheritable(got)


@pytest.mark.parametrize("size", [1, 24, 4 << 20])
def test_the_payload_is_whole(pair, size):
    """Also where it does not fit into the socket's buffer: the receiver reads what the sender has yet to write."""
    import threading

    left, right = pair
    sent = os.urandom(size)
    with managed_fd(memory(b"x")) as fd:
        sender = threading.Thread(target=send_fd, args=(left, fd, sent))
        sender.start()
        got, payload = recv_fd(right, size)
        sender.join(5)
        with managed_fd(got):
            assert payload == sent


def test_nothing_is_sent_to_who_has_it_all():
    """The other end may be closed by then, and even an empty write would fail."""

    class Closed:
        def sendmsg(self, buffers, rights):
            return sum(map(len, buffers))

        def sendall(self, data):
            raise BrokenPipeError

    send_fd(Closed(), 0, b"payload")


def test_messages_stay_apart(pair):
    left, right = pair
    for number in range(3):
        with managed_fd(memory(b"%d" % number)) as fd:
            send_fd(left, fd, b"%08d" % number)
    for number in range(3):
        got, payload = recv_fd(right, 8)
        with managed_fd(got):
            assert (os.pread(got, 9, 0), payload) == (b"%d" % number, b"%08d" % number)


def test_what_cannot_be_sent(pair):
    left, _ = pair
    with pytest.raises(ValueError, match="-1"):
        send_fd(left, -1)
    with pytest.raises(ValueError, match="at least one byte"):
        send_fd(left, 0, b"")
    with pytest.raises(OSError, match="Bad file descriptor"):
        send_fd(left, 1 << 20)
    with pytest.raises(ValueError, match="got 0"):
        recv_fd(left, 0)


@pytest.mark.parametrize(("fds", "match"), [(0, "no file descriptors"), (2, "2 file desc"), (20, "file descriptors")])
def test_not_one_descriptor(pair, fds, match):
    left, right = pair
    send_raw(left, [0] * fds, b"1234")
    with pytest.raises(RuntimeError, match=match):
        recv_fd(right, 4)


def test_the_other_end_is_gone(pair):
    left, right = pair
    left.close()
    with pytest.raises(RuntimeError, match="closed the connection"):
        recv_fd(right)


def test_the_other_end_goes_within_the_payload(pair):
    left, right = pair
    send_raw(left, [0], b"1234")
    left.close()
    with pytest.raises(RuntimeError, match="4 bytes too early"):
        recv_fd(right, 8)


def test_the_other_end_says_nothing(pair):
    _, right = pair
    right.settimeout(0.05)
    with pytest.raises(TimeoutError):
        recv_fd(right)


def test_managed_fd_closes_after_an_error():
    fd = memory(b"")
    with pytest.raises(KeyError), managed_fd(fd):
        raise KeyError
    assert not _open(str(fd))


def test_a_failed_exchange_closes_what_came_and_every_connection(pair):
    mine, theirs = pair
    with managed_fd(memory(b"x")) as fd:
        send_fd(theirs, fd)  # as rank 1 does towards rank 0
        with pytest.raises(OSError, match="Bad file descriptor"):
            exchange_fd({1: mine}, 0, 1 << 20)
    assert theirs.recv(1) == b"", "the peer sees the end of the connection"


def test_a_path_longer_than_an_address(tmp_path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        with fd_passing._short(str(deep / "socket")) as path:
            listener.bind(path)
        listener.listen()
        with fd_passing._short(str(deep / "socket")) as path:
            caller.connect(path)
        assert (deep / "socket").is_socket()
