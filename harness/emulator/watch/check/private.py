"""The private segment, and flat accesses, which may access it: spilled undefined values are undefined when reloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from harness.emulator.operations.access import LOAD, FlatAccess, GlobalAccess, ScratchAccess
from harness.emulator.operations.table import Step
from harness.emulator.watch.check import compiled, report, share
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.heap import Heap
from harness.emulator.watch.check.shadow import Shadow, lane_bits
from harness.emulator.wavefront.state import LANES, Wavefronts

Body = Callable[[Wavefronts, Shadow], None]


def scratch(access: ScratchAccess, plain: Step, share_by_chunk: share.ShareByChunk) -> tuple[int, Body]:
    """Return the registers that a scratch instruction writes, and the step in place of ``plain``."""
    words = max(1, access.size // 4)
    results = registers.vectors(access.data, words) if access.kind == LOAD else 0
    scalar = registers.scalars(access.sreg) if access.sreg >= 0 else 0
    address = scalar | (registers.vectors(access.areg) if access.areg >= 0 else 0)

    def step(wf: Wavefronts, shadow: Shadow) -> None:
        if shadow.dirty & address:
            bad = wf.exec_mask & (lane_bits(shadow, access.areg, int(access.areg >= 0)))
            if undefined_name := shadow.undefined_scalar(scalar):
                bad[undefined_name[0]] |= wf.exec_mask[undefined_name[0]]
            if bad.any():
                report.undefined(wf, access.instruction, int(bad.argmax()), "the scratch address is undefined")
        first, memory, lane_bytes = wf.chunk.private
        undefined = share_by_chunk[wf.chunk].private(len(memory))
        # A wavefront's 64 segments are contiguous, as the data share of a work-group is.
        at = access.addresses(wf) + lane_bytes * np.arange(LANES)
        inside = wf.exec_mask & (access.addresses(wf) + access.size <= lane_bytes)
        common = (inside, wf.wave, 1, first, undefined, LANES * lane_bytes, access.data, access.size)
        if access.kind == LOAD:
            compiled.load_bits(at, shadow.bits.v, *common, access.signed, access.half)
        else:
            compiled.store_bits(at, shadow.bits.v, *common, access.half == 2, False)
        plain(wf)
        if results:
            shadow.settle(results)

    return results, step


def flat(
    access: FlatAccess, plain: Step, heap: Heap, share_by_chunk: share.ShareByChunk, strict: bool
) -> tuple[int, Body]:
    """Return the registers that a flat instruction writes, and the step in place of ``plain``.

    Each lane is checked as the access (global, LDS or private) that its address selects.
    """
    as_global = GlobalAccess(**{field.name: getattr(access, field.name) for field in fields(GlobalAccess)})
    results, whole = heap.access(as_global, plain)
    assert access.shared is not None  # sanity check
    high = access.address.areg + 1
    _, outside = heap.access(as_global, _nothing)
    _, in_share = share.access(access.shared, _nothing, share_by_chunk, strict)
    # An atomic on the private segment is a fault, which the plain step raises.
    in_private = scratch(access.private, _nothing, share_by_chunk)[1] if access.private is not None else None

    def step(wf: Wavefronts, shadow: Shadow) -> None:
        if shadow.dirty >> high & 1 and (bad := lane_bits(shadow, high, 1) & wf.exec_mask).any():
            message = "the address depends on an undefined value"
            report.undefined(wf, access.instruction, int(bad.argmax()), message)
        apertures = access.apertures(wf)
        if apertures is None:
            whole(wf, shadow)
            return
        lds, private = apertures
        saved = wf.exec_mask, wf.exec_all
        for body, lanes in ((in_share, lds), (in_private, private), (outside, saved[0] & ~lds & ~private)):
            if body is not None and lanes.any():
                wf.exec_mask, wf.exec_all = np.ascontiguousarray(lanes), False
                try:
                    body(wf, shadow)
                finally:
                    wf.exec_mask, wf.exec_all = saved
        plain(wf)

    return results, step


def _nothing(wf: Wavefronts) -> None:
    """Do nothing: the plain step where the whole flat instruction is executed afterwards."""
