"""The library ``right_lib`` with one planted bug, which the environment variable ``OUTSIDER_BUG`` names."""

import os

import triton
import triton.language as tl

from tests.outsider import right_lib


@triton.jit
def wrong_translate(pointer, bases, rank, peer):
    """Take the offset from the peer's base: the access stays in the caller's own heap."""
    offset = pointer.to(tl.int64) - tl.load(bases + peer)
    return (tl.load(bases + peer) + offset).to(pointer.dtype)


@triton.jit
def all_but_the_last(offsets, n):
    """Leave out the last element: off by one in the tail."""
    return offsets < n - 1


@triton.jit
def arrives_early(seen, epoch):
    """Accept the flag of the barrier before."""
    return seen >= epoch - 1


@triton.jit
def publish_relaxed(flag, step):
    """Set the flag without a release: it overtakes the payload, which stays in the writer's cache."""
    tl.atomic_xchg(flag, step, sem="relaxed", scope="sys")


@triton.jit
def publish_to_this_gpu(flag, step):
    """Release the payload to the writer's GPU only: the reader is on another one."""
    tl.atomic_xchg(flag, step, sem="release", scope="gpu")


@triton.jit
def leave_set(flag):
    """Leave the flag set: the next wait sees a stale value, and the next signal waits for ever."""


def without_waiting(self) -> None:  # type: ignore[no-untyped-def]
    """Store to peers that are not ready, and return before the peers' stores have arrived."""


@triton.jit
def right_neighbour(rank, world, i):
    """Take the right neighbour in every round but the first: with two ranks there is no other."""
    return (rank + tl.minimum(i, 1)) % world


@triton.jit
def read_relaxed(flag):
    """Read a flag without an acquire: the loads after it may find the reader's old copy of the payload."""
    return tl.atomic_add(flag, 0, sem="relaxed", scope="sys")


@triton.jit(do_not_specialize=["rank", "n"])
def gather_by_loads_kernel(output, source, bases, rank, world, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    for peer in range(world):
        values = right_lib.remote_load(source + offsets, bases, rank, peer, mask)
        tl.store(output + peer * n + offsets, values, mask=mask)


def gather_by_loads(self, output, source) -> None:  # type: ignore[no-untyped-def]
    """Return when this rank has loaded: it may overwrite its input for the next call while a peer still loads it."""
    n = source.numel()
    self.barrier()
    grid = (triton.cdiv(n, right_lib.BLOCK),)
    gather_by_loads_kernel[grid](
        output, source, self.bases, self.rank, self.world_size, n, BLOCK=right_lib.BLOCK
    )  # fmt: skip


def gather_at_once(self, output, source) -> None:  # type: ignore[no-untyped-def]
    """Store to the peers' outputs while they may still read the results of their last call."""
    n = source.numel()
    grid = (triton.cdiv(n, right_lib.BLOCK),)
    right_lib.all_gather_kernel[grid](
        output, source, self.bases, self.rank, self.world_size, n, BLOCK=right_lib.BLOCK
    )  # fmt: skip
    self.barrier()


BUGS = {
    "wrong peer base": (right_lib, "translate", wrong_translate),
    "off-by-one tail": (right_lib, "inside", all_but_the_last),
    "barrier returns early": (right_lib, "has_arrived", arrives_early),
    "stale flag": (right_lib, "clear", leave_set),
    "relaxed flag": (right_lib, "publish", publish_relaxed),
    "flag released to the GPU": (right_lib, "publish", publish_to_this_gpu),
    "no wait for completion": (right_lib.Comm, "_wait_for_all", without_waiting),
    "flag read without acquire": (right_lib, "read_flag", read_relaxed),
    "missing end barrier": (right_lib.Comm, "all_gather", gather_by_loads),
    "missing start barrier": (right_lib.Comm, "all_gather", gather_at_once),
    "wrong rotation": (right_lib, "peer_in_round", right_neighbour),
}
"""Name of a bug -> what it replaces, and by what."""

if "OUTSIDER_BUG" in os.environ:
    setattr(*BUGS[os.environ["OUTSIDER_BUG"]])

Comm, remote_load, remote_store = right_lib.Comm, right_lib.remote_load, right_lib.remote_store
