"""load(pointer, from_rank, mask, other, cache_modifier, volatile): a block of a peer's memory as values.

``pointer`` is the caller's own and is translated to the rank that is read. Lanes that the mask switches off are not
read and have the value ``other``; without ``other`` they are undefined, so the kernel stores them only when it was
given.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.transfer import OTHER, PEERS, launch_triton, mask_form, mask_of, run_transfers
from fixtures.requirement import requirement
from harness.cases import ALL, SOME, TransferCase


@gluon.jit(do_not_specialize=["from_rank"])
def load_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, keep, n, from_rank,
    MASK: gl.constexpr, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr, VOLATILE: gl.constexpr,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    BLOCK: gl.constexpr = SPT * LANES * WARPS
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = None
    if MASK != "none":
        mask = offsets < n
    if MASK == "pattern":
        mask = mask & (gl.load(keep + offsets, mask=mask, other=0) != 0)
    value = ctx.load(
        source + offsets, from_rank, mask=mask, other=OTHER, cache_modifier=LOAD_MODIFIER, volatile=VOLATILE
    )
    if OTHER is None:
        gl.store(target + offsets, value, mask=mask)
    else:
        gl.store(target + offsets, value)


load_anywhere = gluon.jit(load_kernel.fn, do_not_specialize=["source", "target", "keep", "n", "from_rank"])


@triton.jit(do_not_specialize=PEERS)
def load_by_context(
    DeviceContext: tl.constexpr, context_tensor, source, target, keep, n, RANK: tl.constexpr, RANKS: tl.constexpr,
    from_rank, MASK: tl.constexpr, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr,
    HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    value = ctx.load(
        source + offsets, from_rank, mask=mask, other=OTHER, cache_modifier=LOAD_MODIFIER, volatile=VOLATILE, hint=HINT
    )
    if OTHER is None:
        tl.store(target + offsets, value, mask=mask)
    else:
        tl.store(target + offsets, value)


@triton.jit(do_not_specialize=PEERS)
def load_by_function(
    load: tl.constexpr, heap_bases, source, target, keep, n, rank, from_rank, MASK: tl.constexpr, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    # The caller comes first, whatever the parameters are called.
    value = load(
        source + offsets, rank, from_rank, heap_bases, mask=mask, other=OTHER, cache_modifier=LOAD_MODIFIER,
        volatile=VOLATILE, hint=HINT,
    )  # fmt: skip
    if OTHER is None:
        tl.store(target + offsets, value, mask=mask)
    else:
        tl.store(target + offsets, value)


def launch(env, case, source, slot, keep, peer):
    if case.form != "gluon":
        launch_triton(env, case, "load", (load_by_context, load_by_function), (source, slot, keep), peer)
        return
    kernel = load_kernel if case.aligned else load_anywhere
    warps = env.warps(case.warps)
    kernel[(case.grid,)](
        env.device_context, env.context, source, slot, keep, case.n, peer,
        mask_form(case), OTHER if case.other else None, case.load_modifier, case.volatile,
        case.vector, env.device.lanes, warps, num_warps=warps,
    )  # fmt: skip


def run(env, case):
    return run_transfers(env, case, launch, push=False, shows_other=True)


class Address:
    """A raw int32 pointer, as Triton takes it from any object with ``data_ptr`` and ``dtype``."""

    dtype = torch.int32

    def __init__(self, address):
        self._address = address

    def data_ptr(self):
        return self._address


def read_word(env, rank, start):
    """The int32 at byte ``start`` of ``rank``'s arena, by a remote load; for other requirements."""
    return _read(env, env.pointer(start, torch.int32), rank)


def read_address(env, address):
    """The int32 at an address as it is mapped in this process, by a load that translates nothing."""
    return _read(env, Address(address), env.rank)


def write_address(env, address, word):
    """Stores an int32 there, by the same kernel."""
    _load(env, torch.tensor([word], dtype=torch.int32, device=env.device.torch_device), Address(address), env.rank)


def _read(env, pointer, rank):
    seen = torch.zeros(1, dtype=torch.int32, device=env.device.torch_device)
    _load(env, pointer, seen, rank)
    return int(seen[0])


def _load(env, source, target, rank):
    keep = torch.ones(1, dtype=torch.uint8, device=env.device.torch_device)
    launch(env, TransferCase(n=1), source, target, keep, rank)
    env.device.synchronize()


def cases(ranks, dtype, form="gluon"):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype, other=True, volatile=True, form=form)


@requirement("RMA-LOAD-001", cases=cases, dtype=ALL)
def test_load(check, case):
    check(run, case)


@requirement("RMA-LOAD-002", cases=partial(cases, form="context"), weight=0.5, dtype=SOME)
def test_load_by_context(check, case):
    check(run, case)


@requirement("RMA-LOAD-003", cases=partial(cases, form="function"), weight=0.75, dtype=SOME)
def test_load_by_function(check, case):
    check(run, case)
