"""What put, store, get, load and copy have in common: a block moves from one rank's source to another rank's slot.

Every rank has one source and, for each rank that it receives from, a slot. The kernel of an op is launched once per
peer. torch.distributed's all_to_all_single moves the same payloads; then the whole heap is compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from fixtures.worker import Env
from harness.cases import TransferCase, kept_lanes, of_name, payload, rounds_needed
from harness.oracles import exchange

SOURCE, SLOTS, SLOT_STRIDE = 2048, 64 * 1024, 32 * 1024
OTHER = -3
"""What is passed as ``other``: a value that payloads do not hold in the lanes next to it."""

Launch = Callable[[Env, TransferCase, torch.Tensor, torch.Tensor, torch.Tensor, int], None]


def run_transfers(
    env: Env, case: TransferCase, launch: Launch, *, push: bool, shows_other: bool = False
) -> dict[str, Any] | None:
    """All rounds of a case on this rank. ``push``: the caller is the sender. ``shows_other``: masked lanes give
    ``other``.

    ``launch(env, case, source, slot, keep, peer)`` is called with this rank's own pointers, as every Iris method
    takes them.
    """
    found = None
    for round_ in range(rounds_needed(case.dtype, env.world_size * case.n)):
        found = _round(env, case, launch, push, shows_other, round_) or found
    return found


def _round(
    env: Env, case: TransferCase, launch: Launch, push: bool, shows_other: bool, round_: int
) -> dict[str, Any] | None:
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    target_dtype = of_name(case.target_dtype)
    pairs = {(actor, peer) for actor, peers in enumerate(case.targets) for peer in peers}
    transfers = pairs if push else {(peer, actor) for actor, peer in pairs}

    image.reset()
    mine = payload(case.dtype, case.n, rank=me, ranks=ranks, round_=round_)
    source = image.claim("source", SOURCE + case.src_offset * dtype.itemsize, case.n, dtype)
    image.fill(source, mine)
    received = exchange(mine, transfers, rank=me, ranks=ranks)  # ... and every heap is ready

    whole = case.other and shows_other
    for sender, sent in received.items():
        values = sent.to(target_dtype)
        kept = kept_lanes(case.mask, case.n, sender if push else me)
        slot = image.claim(
            f"what came from rank {sender}",
            _slot(case, sender),
            case.grid * case.block if whole else case.n,
            target_dtype,
        )
        if whole:
            image.expected(slot).fill_(OTHER)
            image.expected(slot)[: case.n][torch.from_numpy(kept)] = values[torch.from_numpy(kept)]
        else:
            image.expect(slot, values, kept)

    keep = torch.from_numpy(np.append(kept_lanes(case.mask, case.n, me), False).astype(np.uint8)).to(
        env.device.torch_device
    )
    with env.acting():
        for peer in case.targets[me]:
            slot = env.pointer(_slot(case, me if push else peer), target_dtype)
            launch(env, case, env.pointer(source.start, dtype), slot, keep, peer)
    env.settle()
    return image.difference()


def _slot(case: TransferCase, sender: int) -> int:
    return SLOTS + sender * SLOT_STRIDE + case.dst_offset * of_name(case.dtype).itemsize


@triton.jit
def mask_of(keep, n, offsets, MASK: tl.constexpr):
    """The mask of a ``mask_form``, "range" or "pattern", in a Triton kernel."""
    mask = offsets < n
    if MASK == "pattern":
        mask = mask & (tl.load(keep + offsets, mask=mask, other=0) != 0)
    return mask


def launch_triton(
    env: Env, case: TransferCase, op: str, kernels: tuple[Any, Any], data: tuple[Any, ...], *peers: int
) -> None:
    """Launch the first of ``kernels`` with ``DeviceContext``, or the second with the function ``op``; by the case's
    form.

    Their parameters: what the form takes, ``data`` (source, target, keep), n, the calling rank (constexpr for the
    context, with the world's size), ``peers``, MASK, OTHER, LOAD_MODIFIER, STORE_MODIFIER or VOLATILE, HINT, BLOCK.
    """
    by_context, by_function = kernels
    kernel = by_context if case.form == "context" else by_function
    if case.hinted or not case.aligned:
        kernel = anywhere(kernel)
    if case.form == "context":
        first, caller = (env.under_test.triton_context, env.context), (env.rank, env.world_size)
    else:
        first, caller = (env.under_test.function(op), env.iris.get_heap_bases()), (env.rank,)
    kernel[(case.grid,)](
        *first, *data, case.n, *caller, *peers,
        mask_form(case), OTHER if case.other else None, case.load_modifier,
        case.volatile if op == "load" else case.store_modifier,
        16 if case.hinted else None, case.block, num_warps=env.warps(case.warps),
    )  # fmt: skip


PEERS = ["rank", "from_rank", "to_rank"]
"""Parameters of Triton kernels that are not specialised, so that all ranks run one binary."""


@functools.cache
def anywhere(kernel: Any) -> Any:
    """The Triton kernel compiled for pointers and counts of any alignment."""
    return triton.jit(kernel.fn, do_not_specialize=[*PEERS, "source", "target", "keep", "n"])


def mask_form(case: TransferCase) -> str:
    """Which mask argument the kernel passes: "none", "range" (offsets < n) or "pattern"."""
    return case.mask if case.mask in ("none", "range") else "pattern"
