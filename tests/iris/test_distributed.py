"""What ranks do together below the instance: descriptors, topology, the small collectives. One group of three ranks."""

from __future__ import annotations

import os
import tempfile
import time

import pytest
import torch.distributed as dist

from iris_under_test.host.distributed import fd_passing
from iris_under_test.host.distributed.fd_passing import close_connections, exchange_fd, setup_fd_infrastructure
from tests.iris.ranks import run_checks


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def own_directories() -> list[str]:
    """Directories of sockets that this process's user has left in the temporary directory."""
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("iris-fd-")]


def told(error: BaseException | None) -> list[str]:
    """What each rank's error was."""
    texts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(texts, f"{type(error).__name__}: {error}" if error else "")
    return texts


def caught(call, kind=Exception):
    try:
        call()
    except kind as error:
        return error
    return None


def fds_reach_every_peer(ctx, rank, num_ranks):
    """Twice at once: two sets of connections do not meet."""
    before = descriptors()
    sets = [setup_fd_infrastructure(rank, num_ranks) for _ in range(2)]
    for turn, connections in enumerate(sets):
        assert sorted(connections) == [peer for peer in range(num_ranks) if peer != rank]
        fd = os.memfd_create("test")
        os.write(fd, f"{turn} of {rank}".encode())
        received = exchange_fd(connections, rank, fd, bytes([turn, rank]))
        os.close(fd)
        for peer, (got, payload) in received.items():
            assert payload == bytes([turn, peer])
            assert os.pread(got, 20, 0) == f"{turn} of {peer}".encode()
            os.close(got)
    for connections in sets:
        close_connections(connections)
        assert connections == {}
    assert descriptors() == before


def fd_setups_leave_nothing(ctx, rank, num_ranks):
    before, uncollected = descriptors(), own_directories()
    for _ in range(50):
        close_connections(setup_fd_infrastructure(rank, num_ranks))
    assert descriptors() == before
    dist.barrier()
    assert not set(own_directories()) - set(uncollected)


def a_wrong_rank_is_an_error_everywhere(ctx, rank, num_ranks):
    before = descriptors()
    wrong = num_ranks if rank == 1 else rank
    texts = told(caught(lambda: setup_fd_infrastructure(wrong, num_ranks)))
    assert texts[1].startswith(f"ValueError: rank {num_ranks} of {num_ranks} is not this process")
    assert texts[0] == texts[2] == f"RuntimeError: connecting the ranks failed: rank 1: {texts[1]}"
    assert descriptors() == before


def another_host_is_an_error_everywhere(ctx, rank, num_ranks):
    """Rank 0's path means nothing where the other ranks are."""
    listen = fd_passing._listen
    if rank == 0:
        fd_passing._listen = lambda *arguments: (listen(*arguments)[0], tempfile.gettempdir() + "/not-there/socket")
    fd_passing.CONNECT_LIMIT_S = 0.5
    started = time.monotonic()
    try:
        texts = told(caught(lambda: setup_fd_infrastructure(rank, num_ranks)))
    finally:
        fd_passing._listen, fd_passing.CONNECT_LIMIT_S = listen, 10.0
    assert time.monotonic() - started < 10
    assert texts[0] == "TimeoutError: ranks [1, 2] did not connect within 0.5 s", texts
    assert all(text.startswith("FileNotFoundError: the socket of rank 0") for text in texts[1:]), texts


def a_late_rank_is_waited_for(ctx, rank, num_ranks):
    """The limit counts from when the last rank has come."""
    fd_passing.CONNECT_LIMIT_S = 0.3
    try:
        if rank == 0:
            time.sleep(0.6)
        close_connections(setup_fd_infrastructure(rank, num_ranks))
    finally:
        fd_passing.CONNECT_LIMIT_S = 10.0


def a_stranger_is_refused(ctx, rank, num_ranks):
    """Rank 2 says that it is rank 7."""
    pack = fd_passing._RANK
    if rank == 2:
        fd_passing._RANK = type("Lies", (), {"pack": lambda self, rank: pack.pack(7), "size": 4})()
    try:
        texts = told(caught(lambda: setup_fd_infrastructure(rank, num_ranks)))
    finally:
        fd_passing._RANK = pack
    assert "rank 7 connected where ranks" in texts[0], texts
    assert all(texts)


CHECKS = [
    fds_reach_every_peer, fd_setups_leave_nothing, a_wrong_rank_is_an_error_everywhere,
    another_host_is_an_error_everywhere, a_late_rank_is_waited_for, a_stranger_is_refused,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=3, heap_size=1 << 20, emulated=False)


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_three_ranks(failures, name):
    assert failures[name] == "", failures[name]


def test_a_single_rank_has_no_connections():
    assert setup_fd_infrastructure(0, 1) is None


def test_without_torch_distributed():
    with pytest.raises(RuntimeError, match="init_process_group"):
        setup_fd_infrastructure(0, 2)
