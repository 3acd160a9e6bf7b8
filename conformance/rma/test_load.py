"""load(pointer, from_rank, mask, other, cache_modifier, volatile): a block of a peer's memory as values.

``pointer`` is the caller's own and is translated to the rank that is read. Lanes that the mask switches off are not
read and have the value ``other``; without ``other`` they are undefined, so the kernel stores them only when it was
given.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.transfer import OTHER, mask_form, run_transfers
from fixtures.requirement import requirement
from harness.cases import ALL, TransferCase


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


def launch(env, case, source, slot, keep, peer):
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


def _read(env, pointer, rank):
    seen = torch.zeros(1, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(1, dtype=torch.uint8, device=env.device.torch_device)
    launch(env, TransferCase(n=1), pointer, seen, keep, rank)
    env.device.synchronize()
    return int(seen[0])


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype, other=True, volatile=True)


@requirement("RMA-LOAD-001", cases=cases, dtype=ALL)
def test_load(check, case):
    check(run, case)
