"""The rank function of put, store, get, load and copy: a block moves from one rank's source to another rank's slot.

Every rank has one source, and a slot for each rank from which it receives. The kernel of an op is launched once per
peer. torch.distributed's all_to_all_single moves the same payloads; then the whole heap is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from conformance.rma import kernels
from conformance.rma.cases import TransferCase
from conformance.rma.kernels import OTHER
from conformance.rma.operations import TRANSFERS, Transfer
from conformance.support.masks import kept_lanes
from fixtures.worker import Env
from harness.cases import of_name, payload, rounds_needed
from harness.oracles import exchange
from harness.oracles.heap import place

SOURCE, SLOTS, SLOT_STRIDE = 2048, 64 * 1024, 32 * 1024

Launch = Callable[[Env, Transfer, TransferCase, torch.Tensor, torch.Tensor, torch.Tensor, int], None]


def run(env: Env, case: TransferCase, op: str) -> dict[str, Any] | None:
    """Run a case of the op of that name on this rank, with the kernels of ``conformance.rma.kernels``."""
    return run_transfers(env, TRANSFERS[op], case, kernels.launch)


def drawn(ranks: int, dtype: str, op: str, form: str = "gluon") -> Any:
    """Return the strategies for cases of the op of that name with one element type."""
    from conformance.rma import strategies

    return strategies.transfers(ranks, op, dtype, form)


def moves(ranks: int, case: TransferCase) -> bool:
    """Return whether elements of the case reach another rank, whatever its mask selects."""
    others = any(peer != actor for actor, peers in enumerate(case.targets) for peer in peers)
    return others and case.n > 0 and case.mask in ("none", "range")


def run_transfers(env: Env, op: Transfer, case: TransferCase, launch: Launch) -> dict[str, Any] | None:
    """Run all rounds of a case on this rank and return the first difference.

    ``launch(env, op, case, source, slot, keep, peer)`` gets pointers into this rank's heap, as every Iris method
    expects.
    """
    mismatch = None
    for round_ in range(rounds_needed(case.dtype, env.world_size * case.n)):
        mismatch = _round(env, op, case, launch, round_) or mismatch
    return mismatch


def _round(env: Env, op: Transfer, case: TransferCase, launch: Launch, round_: int) -> dict[str, Any] | None:
    push = op.pushes(case)
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    target_dtype = of_name(case.target_dtype)
    pairs = {(actor, peer) for actor, peers in enumerate(case.targets) for peer in peers}
    transfers = pairs if push else {(peer, actor) for actor, peer in pairs}

    image.reset()
    converted = case.target_dtype != case.dtype
    mine = payload(case.dtype, case.n, rank=me, ranks=ranks, round_=round_, converted=converted)
    source = image.claim("source", SOURCE + case.src_offset * dtype.itemsize, case.n, dtype)
    image.fill(source, mine)
    received = exchange(mine, transfers, rank=me, ranks=ranks)  # also a barrier: every heap is ready

    whole = case.other and op.shows_other
    for sender, sent in received.items():
        values = sent.to(target_dtype)
        kept = kept_lanes(case.mask, case.n, sender if push else me)
        slot = image.claim(
            f"slot for rank {sender}",
            _slot(case, sender),
            case.grid * case.block if whole else case.n,
            target_dtype,
            lanes=case.grid * case.block,
        )
        if whole:
            image.expected(slot).fill_(OTHER)
            place(image.expected(slot)[: case.n], values.cpu(), kept)
        else:
            image.expect(slot, values, kept)

    keep = torch.from_numpy(np.append(kept_lanes(case.mask, case.n, me), False).astype(np.uint8)).to(
        env.device.torch_device
    )
    with env.acting():
        for peer in case.targets[me]:
            slot = env.pointer(_slot(case, me if push else peer), target_dtype)
            launch(env, op, case, env.pointer(source.start, dtype), slot, keep, peer)
    env.settle()
    return image.difference()


def _slot(case: TransferCase, sender: int) -> int:
    return SLOTS + sender * SLOT_STRIDE + case.dst_offset * of_name(case.dtype).itemsize
