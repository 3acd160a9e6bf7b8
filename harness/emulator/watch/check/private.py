"""The private segment, and flat accesses, which may mean it: undefined values are spilled and come back undefined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from harness.emulator.ops.access import LOAD, FlatAccess, GlobalAccess, ScratchAccess
from harness.emulator.ops.table import Step
from harness.emulator.state import LANES, Wavefronts
from harness.emulator.watch.check import compiled, report, share
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.heap import Heap
from harness.emulator.watch.check.shadow import Shadow, lane_bits

Body = Callable[[Wavefronts, Shadow], None]


def scratch(access: ScratchAccess, plain: Step, shares: share.Shares) -> tuple[int, Body]:
    """The registers that a scratch instruction writes, and the step in place of ``plain``."""
    words = max(1, access.size // 4)
    results = registers.vectors(access.data, words) if access.kind == LOAD else 0
    scalar = registers.scalars(access.sreg) if access.sreg >= 0 else 0
    address = scalar | (registers.vectors(access.areg) if access.areg >= 0 else 0)

    def step(wf: Wavefronts, shadow: Shadow) -> None:
        if shadow.dirty & address:
            bad = wf.exec_mask & (lane_bits(shadow, access.areg, int(access.areg >= 0)))
            if found := shadow.undefined_scalar(scalar):
                bad[found[0]] |= wf.exec_mask[found[0]]
            if bad.any():
                report.undefined(wf, access.instruction, int(bad.argmax()), "the scratch address is undefined")
        first, memory, lane_bytes = wf.chunk.private
        undefined = shares[wf.chunk].private(len(memory))
        # A wavefront's 64 segments lie behind each other, as a work-group's data share does.
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


def flat(access: FlatAccess, plain: Step, heap: Heap, shares: share.Shares, strict: bool) -> tuple[int, Body]:
    """The registers that a flat instruction writes, and the step in place of ``plain``: each lane as the access that
    it means."""
    as_global = GlobalAccess(**{field.name: getattr(access, field.name) for field in fields(GlobalAccess)})
    results, whole = heap.access(as_global, plain)
    if access.shared is None or access.private is None:
        return results, whole
    high = access.address.areg + 1
    _, outside = heap.access(as_global, _nothing)
    _, in_share = share.access(access.shared, _nothing, shares, strict)
    _, in_private = scratch(access.private, _nothing, shares)

    def step(wf: Wavefronts, shadow: Shadow) -> None:
        if shadow.dirty >> high & 1 and (bad := lane_bits(shadow, high, 1) & wf.exec_mask).any():
            what = "the address depends on an undefined value"
            report.undefined(wf, access.instruction, int(bad.argmax()), what)
        apertures = access.apertures(wf)
        if apertures is None:
            whole(wf, shadow)
            return
        lds, private = apertures
        saved = wf.exec_mask, wf.exec_all
        for body, lanes in ((in_share, lds), (in_private, private), (outside, saved[0] & ~lds & ~private)):
            if lanes.any():
                wf.exec_mask, wf.exec_all = np.ascontiguousarray(lanes), False
                try:
                    body(wf, shadow)
                finally:
                    wf.exec_mask, wf.exec_all = saved
        plain(wf)

    return results, step


def _nothing(wf: Wavefronts) -> None:
    """The plain step, when the flat instruction is executed whole afterwards."""
