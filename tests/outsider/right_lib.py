"""A communication library as an author outside of this project would write it: HIP by ctypes, torch.cuda, Triton.

It imports nothing of this project and does not know that its GPUs may be emulated.
"""

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from tests.outsider import hip

BLOCK = 1024


@triton.jit
def translate(pointer, bases, rank, peer):
    offset = pointer.to(tl.int64) - tl.load(bases + rank)
    return (tl.load(bases + peer) + offset).to(pointer.dtype)


@triton.jit
def remote_load(pointer, bases, rank, peer, mask):
    return tl.load(translate(pointer, bases, rank, peer), mask=mask)


@triton.jit
def remote_store(pointer, value, bases, rank, peer, mask):
    tl.store(translate(pointer, bases, rank, peer), value, mask=mask)


@triton.jit
def inside(offsets, n):
    return offsets < n


@triton.jit
def has_arrived(seen, epoch):
    return seen >= epoch


@triton.jit
def flags_of(flag_bases, rank):
    return tl.load(flag_bases + rank).to(tl.pointer_type(tl.int32))


@triton.jit(do_not_specialize=["rank", "epoch"])
def barrier_kernel(flag_bases, rank, world, epoch):
    for peer in range(world):
        tl.atomic_xchg(flags_of(flag_bases, peer) + rank, epoch, sem="release", scope="sys")
    for peer in range(world):
        flag = flags_of(flag_bases, rank) + peer
        while not has_arrived(tl.atomic_add(flag, 0, sem="acquire", scope="sys"), epoch):
            pass


@triton.jit
def wait_until(flag, value):
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") != value:
        pass


@triton.jit
def clear(flag):
    tl.atomic_xchg(flag, 0, sem="release", scope="sys")


@triton.jit(do_not_specialize=["rank", "peer"])
def signal_kernel(flag_bases, rank, peer, world):
    flag = flags_of(flag_bases, peer) + world + rank
    wait_until(flag, 0)
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")


@triton.jit(do_not_specialize=["rank", "peer"])
def wait_kernel(flag_bases, rank, peer, world):
    flag = flags_of(flag_bases, rank) + world + peer
    wait_until(flag, 1)
    clear(flag)


@triton.jit
def peer_in_round(rank, world, i):
    """Return another peer for each rank, so that the ranks do not all store to the same one."""
    return (rank + i) % world


@triton.jit(do_not_specialize=["rank", "n"])
def all_gather_kernel(output, source, bases, rank, world, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = inside(offsets, n)
    values = tl.load(source + offsets, mask=mask)
    for i in range(world):
        peer = peer_in_round(rank, world, i)
        remote_store(output + rank * n + offsets, values, bases, rank, peer, mask)


@triton.jit
def publish(flag, step):
    """Set a flag after this wavefront's earlier stores."""
    tl.atomic_xchg(flag, step, sem="release", scope="sys")


@triton.jit
def read_flag(flag):
    """Read a flag before this wavefront's later loads."""
    return tl.atomic_add(flag, 0, sem="acquire", scope="sys")


@triton.jit(do_not_specialize=["rank", "step", "n"])
def all_reduce_kernel(output, source, flag_bases, inbox_bases, rank, world, step, n, BLOCK: tl.constexpr):
    """Send each block to every rank's inbox, raise a flag, and sum the blocks of all ranks.

    There are two inboxes. A rank fills one again only after every rank's flag for the other, which that rank raised
    after it had read the first. The program has one wavefront, whose release covers all its stores.
    """
    lane = tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        step += 1
        half = step % 2 * world * BLOCK
        mask = inside(start + lane, n)
        values = tl.load(source + start + lane, mask=mask).to(tl.float32)
        for peer in range(world):
            inbox = tl.load(inbox_bases + peer).to(tl.pointer_type(tl.float32)) + half
            tl.store(inbox + rank * BLOCK + lane, values, mask=mask)
            publish(flags_of(flag_bases, peer) + 2 * world + rank, step)
        total = tl.zeros([BLOCK], tl.float32)
        for peer in range(world):
            flag = flags_of(flag_bases, rank) + 2 * world + peer
            while read_flag(flag) < step:
                pass
            inbox = tl.load(inbox_bases + rank).to(tl.pointer_type(tl.float32)) + half
            total += tl.load(inbox + peer * BLOCK + lane, mask=mask)
        tl.store(output + start + lane, total.to(output.dtype.element_ty), mask=mask)


class Shared:
    """Zeroed memory of every rank, which all ranks map: HIP's IPC handles, exchanged through torch.distributed."""

    def __init__(self, nbytes: int, device: torch.device) -> None:
        self.address = hip.malloc(nbytes)
        handles = [b""] * dist.get_world_size()
        dist.all_gather_object(handles, hip.export(self.address))
        rank = dist.get_rank()
        addresses = [self.address if r == rank else hip.open_peer(handle) for r, handle in enumerate(handles)]
        self._peers = [address for r, address in enumerate(addresses) if r != rank]
        self.bases = torch.tensor(addresses, dtype=torch.int64, device=device)
        dist.barrier()  # all ranks have mapped this rank's zeroed memory

    def close(self) -> None:
        """Unmap the peers' memory, and free this rank's when no rank has it mapped."""
        hip.synchronize()
        for address in self._peers:
            hip.close_peer(address)
        dist.barrier()
        hip.free(self.address)


class Comm:
    """Symmetric memory of all ranks, and the flags that synchronise them."""

    def __init__(self, nbytes: int) -> None:
        if nbytes <= 0:
            raise ValueError(f"expected a positive number of bytes, got {nbytes}")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device())
        hip.set_device(torch.cuda.current_device())
        self._memory = Shared(nbytes, self.device)
        self._flags = Shared(12 * self.world_size, self.device)
        self._inboxes = Shared(2 * self.world_size * BLOCK * 4, self.device)
        self.base, self.bases = self._memory.address, self._memory.bases
        self._flag_bases = self._flags.bases
        self._epoch, self._step, self._open = 0, 0, True

    def close(self) -> None:
        """Give the memory back. All ranks call it."""
        if self._open:
            self._open = False
            for shared in (self._memory, self._flags, self._inboxes):
                shared.close()

    def barrier(self) -> None:
        if not self._open:
            raise RuntimeError("barrier: this Comm was closed")
        self._epoch += 1
        barrier_kernel[(1,)](self._flag_bases, self.rank, self.world_size, self._epoch, num_warps=1)

    def signal(self, peer: int) -> None:
        signal_kernel[(1,)](self._flag_bases, self.rank, peer, self.world_size, num_warps=1)

    def wait(self, peer: int) -> None:
        wait_kernel[(1,)](self._flag_bases, self.rank, peer, self.world_size, num_warps=1)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor) -> None:
        n = source.numel()
        self._wait_for_all()
        grid = (triton.cdiv(n, BLOCK),)
        all_gather_kernel[grid](output, source, self.bases, self.rank, self.world_size, n, BLOCK=BLOCK)
        self._wait_for_all()

    def _wait_for_all(self) -> None:
        """Wait until every rank's memory may be written, or has been."""
        self.barrier()

    def all_reduce(self, output: torch.Tensor, source: torch.Tensor) -> None:
        n = source.numel()
        all_reduce_kernel[(1,)](
            output, source, self._flags.bases, self._inboxes.bases, self.rank, self.world_size, self._step, n,
            BLOCK=BLOCK, num_warps=1,
        )  # fmt: skip
        self._step += triton.cdiv(n, BLOCK)
