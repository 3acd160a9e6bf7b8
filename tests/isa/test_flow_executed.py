"""The verdict on compiled code agrees with what the emulated device executes.

A sample of the suite runs on two ranks. Every instruction that reached another rank's memory must be remote in the
listing, and no access may be unattributed. The converse holds for instructions that were given another rank: through
the heap bases a rank may also reach itself.
"""

import pytest
import torch
import triton
from triton.runtime import driver

from harness import emulator
from harness.isa import amdgcn, fingerprint
from harness.isa.fingerprint import roots_of
from iris_under_test.ccl import Config
from iris_under_test.ccl.config import ALL_REDUCE_VARIANTS
from iris_under_test.ops import FusedConfig
from tests.iris.ranks import run_checks
from tests.isa import flow_kernels
from tests.isa.test_flow import WAYS


@pytest.fixture
def device():
    active = emulator.activate()
    active.drain_launches()
    yield active
    active.drain_launches()


@pytest.fixture
def heaps(device):
    """Two heaps in this process; the second is a peer's."""
    tensors = [torch.zeros(1 << 16, dtype=torch.int32) for _ in range(2)]
    own, theirs = sorted(tensors, key=torch.Tensor.data_ptr)  # some kernels take the highest address
    device.register_memory(own.data_ptr(), own.nbytes, "own heap")
    device.register_memory(theirs.data_ptr(), theirs.nbytes, "a peer's heap", peer=1)
    yield own, theirs
    device.unregister_memory(own.data_ptr())
    device.unregister_memory(theirs.data_ptr())


def disagreements(launch):
    """Return the accesses whose static verdict contradicts their address."""
    where = amdgcn.places(launch.listing, roots_of(launch))
    return [
        (access, where.get(access.line))
        for access in launch.accesses
        if where.get(access.line) not in (("remote",) if access.where == "peer" else ("remote", "local"))
    ]


# The other kernels need tables of a form that this test does not make.
@pytest.mark.parametrize("kernel", [name for name in WAYS if name not in ("by_two_tables", "by_context", "by_tuple")])
def test_planted_kernels_reach_peers_where_the_listing_says_so(device, heaps, kernel):
    if kernel in flow_kernels.REFUSED_FOR_AMD:
        pytest.skip(f"Triton {triton.__version__} cannot compile {kernel} for AMD GPUs")
    own, theirs = heaps
    table = torch.full((256,), theirs.data_ptr(), dtype=torch.int64)
    if kernel in ("by_rank", "by_turns", "by_bytes"):
        table[0], table[1] = 0, own.data_ptr()  # the rank comes first
    else:
        table[0] = own.data_ptr()
    extra = {"LANES": 64} if "LANES" in getattr(flow_kernels, kernel).arg_names else {}
    getattr(flow_kernels, kernel)[(1,)](table, own[1024:], own[8192:], 17, 0, 1, num_warps=4, **extra)
    [launch] = device.drain_launches()
    assert launch.tables == (0,)
    assert any(access.where == "peer" for access in launch.accesses), "no access reached the peer: it tests nothing"
    assert disagreements(launch) == []


def test_a_table_of_local_addresses_is_none_of_heap_bases(device, heaps):
    own, theirs = heaps
    bases = torch.tensor([own.data_ptr(), theirs.data_ptr()] * 4)
    matrices = torch.tensor([own.data_ptr() + 4096] * 8)
    flow_kernels.by_local_table[(1,)](bases, own, matrices, 17, 0, 1, num_warps=4)
    [launch] = device.drain_launches()
    assert (launch.tables, launch.peers) == ((0,), ())
    assert disagreements(launch) == []
    code = fingerprint(launch.listing, roots=roots_of(launch))
    stores = {access.where for access in code.accesses if access.kind == "store"}
    assert stores == {"remote", "local"}


def test_a_pointer_to_a_peer_and_the_address_of_a_table_are_found(device, heaps):
    own, theirs = heaps
    bases = torch.tensor([own.data_ptr(), theirs.data_ptr()] * 4)
    own[:2].view(torch.int64)[0] = theirs.data_ptr()
    holder = torch.tensor([0, 0, 0, own.data_ptr()])
    flow_kernels.by_loop[(1,)](holder, theirs[64:], bases, 0, 0, 1, num_warps=4)
    [launch] = device.drain_launches()
    assert (launch.tables, launch.peers) == ((0, 2), (1,))


def test_without_other_ranks_memory_nothing_is_known_of_tables(device):
    data = torch.zeros(8192, dtype=torch.int32)
    table = torch.full((8,), data.data_ptr())
    flow_kernels.by_loop[(1,)](table, data, data[4096:], 3, 0, 1, num_warps=4)
    [launch] = device.drain_launches()
    assert launch.tables is None


# -- a sample of the library -------------------------------------------------------------------------------------------


def collectives(ctx, rank, num_ranks):
    """Launch kernels of the library's collectives and products, and compare each launch."""
    active = driver.active
    active.drain_launches()
    rows = 64 * num_ranks
    part, out, other = (ctx.zeros(m, 128, dtype=torch.float16) for m in (64, rows, rows))
    for variant in ALL_REDUCE_VARIANTS:
        ctx.ccl.all_reduce(out, other, config=Config(all_reduce_variant=variant))
    for gluon in (False, True):
        ctx.ccl.all_gather(out, part, config=Config(use_gluon=gluon))
        ctx.ccl.all_to_all(out, other, config=Config(use_gluon=gluon))
    ctx.ccl.reduce_scatter(out, other)
    ctx.device_barrier()
    a, b = torch.zeros(rows, 32).half(), torch.zeros(32, 128).half()
    config = FusedConfig(block_size_m=32, block_size_n=32, block_size_k=32)
    ctx.ops.matmul_all_reduce(out, a, b, config=config)
    launches = active.drain_launches()
    assert len(launches) >= 10
    reached = [launch.kernel for launch in launches if any(access.where == "peer" for access in launch.accesses)]
    assert len(reached) >= 10, reached
    wrong = {launch.kernel: listed for launch in launches if (listed := disagreements(launch))}
    assert not wrong, wrong


@pytest.mark.nightly
def test_the_librarys_kernels_agree():
    assert run_checks([collectives], 2, 1 << 24, emulated=True) == {"collectives": ""}
