"""Collectives below the instance: descriptors, topology, the small collectives. One group of three ranks."""

from __future__ import annotations

import os
import socket
import tempfile
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from iris_under_test import hip, tensor_from_ptr
from iris_under_test.drivers.base import DriverError
from iris_under_test.drivers.fabric import get_fabric_driver, handle_to_tensor, tensor_to_handle
from iris_under_test.host.distributed import extract_group_info, fd_passing, helpers
from iris_under_test.host.distributed.fd_passing import close_connections, exchange_fd, setup_fd_infrastructure
from iris_under_test.host.distributed.topology import TopologyDiscovery
from iris_under_test.host.platform.emulated.platform import EmulatedPlatform
from tests.iris.ranks import run_checks


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def own_directories() -> list[str]:
    """Directories of sockets that this process's user has left in the temporary directory."""
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("iris-fd-")]


def errors_of_all(error: BaseException | None) -> list[str]:
    """Gather each rank's error as text."""
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
    """Twice at once: two sets of connections stay apart."""
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
    texts = errors_of_all(caught(lambda: setup_fd_infrastructure(wrong, num_ranks)))
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
        texts = errors_of_all(caught(lambda: setup_fd_infrastructure(rank, num_ranks)))
    finally:
        fd_passing._listen, fd_passing.CONNECT_LIMIT_S = listen, 10.0
    assert time.monotonic() - started < 10
    assert texts[0] == "TimeoutError: ranks [1, 2] did not connect within 0.5 s", texts
    assert all(text.startswith("FileNotFoundError: the socket of rank 0") for text in texts[1:]), texts


def a_late_rank_is_waited_for(ctx, rank, num_ranks):
    """The limit counts from when the last rank has come."""
    fd_passing.CONNECT_LIMIT_S = 2.0
    try:
        if rank == 0:
            time.sleep(2.5)
        close_connections(setup_fd_infrastructure(rank, num_ranks))
    finally:
        fd_passing.CONNECT_LIMIT_S = 10.0


def a_stranger_is_refused(ctx, rank, num_ranks):
    """Rank 2 sends the rank 7 as its own; what was connected before that is closed."""
    before, pack = descriptors(), fd_passing._RANK
    if rank == 2:
        fd_passing._RANK = type("Lies", (), {"pack": lambda self, rank: pack.pack(7), "size": 4})()
    try:
        texts = errors_of_all(caught(lambda: setup_fd_infrastructure(rank, num_ranks)))
    finally:
        fd_passing._RANK = pack
    assert "rank 7 connected where ranks" in texts[0], texts
    assert all(texts)
    assert descriptors() == before


def arrays_are_gathered(ctx, rank, num_ranks):
    for dtype in (np.int8, np.uint64, np.float16, np.float64, np.complex64, np.bool_, ">i4"):
        mine = (np.arange(5) + 10 * rank).astype(dtype)
        got = helpers.distributed_allgather(mine)
        wanted = np.stack([(np.arange(5) + 10 * peer).astype(dtype) for peer in range(num_ranks)])
        assert (got.dtype, got.shape) == (np.dtype(dtype), (num_ranks, 5))
        assert np.array_equal(got, wanted), dtype
    for shape in ((), (1,), (2, 3), (2, 0, 3)):
        got = helpers.distributed_allgather_multidim(np.full(shape, rank))
        assert got.tolist() == np.stack([np.full(shape, peer) for peer in range(num_ranks)]).tolist()
    turned = helpers.distributed_allgather_multidim(np.arange(6).reshape(2, 3).T + rank)
    assert turned[2].tolist() == (np.arange(6).reshape(2, 3).T + 2).tolist()


def arrays_that_differ_are_an_error_everywhere(ctx, rank, num_ranks):
    nothing = torch.empty(2, device="meta")
    for wrong in ([1.0, 2.0], [1, 2, 3], [[1, 2]], [None, 1], [], [[1], [1, 2]], nothing):
        mine = np.array([1, 2]) if rank else wrong
        texts = errors_of_all(caught(lambda mine=mine: helpers.distributed_allgather(mine)))
        assert len(set(texts)) == 1, texts
        assert texts[0].startswith("ValueError: every rank must pass 1-dimensional arrays"), texts
        assert "1: 'int64 of shape (2,)'" in texts[0], texts


def values_are_broadcast(ctx, rank, num_ranks):
    for value in (7, 2**70, -1.5, 0.1, 1j, True, np.float32(2.5), np.bool_(False), torch.tensor(3), np.array(4)):
        got = helpers.distributed_broadcast_scalar(value if rank == 1 else "ignored", 1)
        plain = value.item() if hasattr(value, "item") else value
        assert (type(got), got) == (type(plain), plain), value
    tensor = torch.arange(6).reshape(2, 3)
    got = helpers.distributed_broadcast_tensor(tensor if rank == 2 else None, 2)
    assert (type(got), got.tolist()) == (np.ndarray, tensor.tolist())
    for wrong in (None, "7", [1, 2], {}, np.zeros(2)):
        texts = errors_of_all(
            caught(lambda wrong=wrong: helpers.distributed_broadcast_scalar(wrong if rank == 0 else 3))
        )
        assert texts[0].startswith("ValueError: expected a scalar to broadcast"), texts
        assert texts[1] == texts[2] == "RuntimeError: broadcast of a scalar failed on ranks [0]", texts


def a_barrier_waits_for_the_last(ctx, rank, num_ranks):
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        time.sleep(0.2)
        store.set("arrived", "")
    helpers.distributed_barrier()
    assert store.check(["arrived"])
    helpers.distributed_barrier(dist.new_group([rank], use_local_synchronization=True))


def topology_of_one_host(ctx, rank, num_ranks):
    discovery = TopologyDiscovery(ctx)
    topology = discovery.discover()
    assert topology is discovery.topology
    assert [gpu.gpu_id for gpu in topology.gpus] == [gpu.local_rank for gpu in topology.gpus] == [0, 1, 2]
    assert {gpu.hostname for gpu in topology.gpus} == {socket.gethostname()}
    assert {gpu.name for gpu in topology.gpus} == {"emulated gfx942"}
    assert topology.get_node_peers(rank) == [peer for peer in range(num_ranks) if peer != rank]
    assert TopologyDiscovery().discover() == topology, "also without an instance"
    maps = [None] * num_ranks
    dist.all_gather_object(maps, topology.to_dict())
    assert maps == [topology.to_dict()] * num_ranks, "the same everywhere"


def topology_of_two_hosts(ctx, rank, num_ranks):
    """Rank 2 elsewhere, in a fabric with rank 0."""
    from iris_under_test.host.distributed.topology import FabricInfo

    name, facts = socket.gethostname, EmulatedPlatform.gpu_facts
    socket.gethostname = lambda: "there" if rank == 2 else "here"
    EmulatedPlatform.gpu_facts = lambda platform, gpu: {"fabric": FabricInfo("F" if rank != 1 else "")}
    try:
        discovery = TopologyDiscovery(ctx)
        discovery.discover()
    finally:
        socket.gethostname, EmulatedPlatform.gpu_facts = name, facts
    assert [list(map(tuple, groups)) for groups in discovery.get_communication_groups().values()] == [
        [(0, 1), (2,)], [(0, 2), (1,)], [(0, 1, 2)],
    ]  # fmt: skip
    plan = discovery.get_heap_distribution_plan()
    assert [plan[peer]["local_rank"] for peer in range(3)] == [0, 1, 0]
    assert (plan[0]["ipc_peers"], plan[0]["fabric_peers"], plan[1]["rdma_peers"]) == ([1], [2], [2])


def a_rank_without_a_device_is_an_error_everywhere(ctx, rank, num_ranks):
    facts = EmulatedPlatform.gpu_facts

    def broken(platform, gpu):
        raise AttributeError("old binding")

    EmulatedPlatform.gpu_facts = broken if rank == 2 else facts
    try:
        texts = errors_of_all(caught(TopologyDiscovery(ctx).discover))
    finally:
        EmulatedPlatform.gpu_facts = facts
    assert set(texts) == {"RuntimeError: ranks cannot identify their device: {2: 'AttributeError: old binding'}"}


def memory_opened_by_another_process(ctx, rank, num_ranks):
    assert (hip.get_device_id(), hip.count_devices()) == (rank, num_ranks)
    before = descriptors()
    own = hip.hip_malloc(1 << 16)
    tensor_from_ptr(own, 1 << 16, torch.int32).fill_(rank)
    handles = [None] * num_ranks
    dist.all_gather_object(handles, hip.get_ipc_handle(own))
    peer = (rank + 1) % num_ranks
    theirs = hip.open_ipc_handle(handles[peer])
    there = tensor_from_ptr(theirs, 1 << 16, torch.int32)
    assert (there == peer).all()
    dist.barrier()
    there[rank] = 100
    dist.barrier()
    assert tensor_from_ptr(own, 1 << 16, torch.int32)[(rank - 1) % num_ranks] == 100
    hip.close_ipc_handle(theirs)
    hip.hip_free(own)
    dist.barrier()
    assert "RuntimeError" in repr(caught(lambda: hip.open_ipc_handle(handles[peer])))
    assert descriptors() == before
    assert isinstance(caught(lambda: hip.set_device((rank + 1) % num_ranks)), ValueError)


def fabric_memory_of_peers(ctx, rank, num_ranks):
    before = descriptors()
    fabric = get_fabric_driver()
    fabric.initialize(ctx.gpu_id)
    own = fabric.allocate_exportable(100_000)
    tensor_from_ptr(own.va, own.size, torch.int64).fill_(rank)
    handles = [torch.empty(64, dtype=torch.uint8) for _ in range(num_ranks)]
    dist.all_gather(handles, handle_to_tensor(fabric.export_handle(own)))
    mappings = [
        fabric.import_and_map(peer, tensor_to_handle(handle), own.size)
        for peer, handle in enumerate(handles)
        if peer != rank
    ]
    for mapping in mappings:
        assert (tensor_from_ptr(mapping.remote_va, own.size, torch.int64) == mapping.peer_rank).all()
    peer = (rank + 1) % num_ranks
    wrong_size = caught(lambda: fabric.import_and_map(peer, tensor_to_handle(handles[peer]), 1 << 20))
    assert isinstance(wrong_size, DriverError), wrong_size
    dist.barrier()
    fabric.cleanup_local(own)
    dist.barrier()
    for mapping in mappings:
        assert (tensor_from_ptr(mapping.remote_va, own.size, torch.int64) == mapping.peer_rank).all(), "it stays"
        fabric.cleanup_import(mapping)
        assert isinstance(caught(lambda mapping=mapping: fabric.cleanup_import(mapping)), DriverError)
    assert descriptors() == before


CHECKS = [
    arrays_are_gathered, arrays_that_differ_are_an_error_everywhere, values_are_broadcast,
    a_barrier_waits_for_the_last, topology_of_one_host, topology_of_two_hosts,
    a_rank_without_a_device_is_an_error_everywhere, memory_opened_by_another_process, fabric_memory_of_peers,
    fds_reach_every_peer, fd_setups_leave_nothing, a_wrong_rank_is_an_error_everywhere,
    another_host_is_an_error_everywhere, a_late_rank_is_waited_for, a_stranger_is_refused,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=3, heap_size=1 << 20, emulated=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_three_ranks(failures, name):
    assert failures[name] == "", failures[name]


def test_a_single_rank_has_no_connections():
    assert setup_fd_infrastructure(0, 1) is None


def test_without_torch_distributed():
    with pytest.raises(RuntimeError, match="init_process_group"):
        setup_fd_infrastructure(0, 2)


class Spaced:
    """Stands for a process group in ``extract_group_info``, with members that torch would not give it here."""

    def __init__(self, *members):
        self.members = list(members)


@pytest.mark.parametrize(
    ("members", "rank", "expected"),
    [
        ((1, 3, 5, 7), 5, (2, 5, 4, 1, 2)),
        ((6, 4, 2), 2, (2, 2, 3, 6, -2)),
        ((3,), 3, (0, 3, 1, 3, 1)),
        ((0, 1, 3), 1, NotImplementedError),
        ((2, 2), 2, ValueError),
        ((0, 1), 5, RuntimeError),
    ],
)
def test_group_geometry(monkeypatch, members, rank, expected):
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: group.members)
    if isinstance(expected, tuple):
        assert extract_group_info(Spaced(*members), rank, 8) == expected
    else:
        with pytest.raises(expected):
            extract_group_info(Spaced(*members), rank, 8)
