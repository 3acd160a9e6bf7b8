"""Messages for data races: both accesses, their source positions, and the missing synchronization."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness.emulator.faults import DataRace
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import LOAD, STORE
from harness.emulator.watch.race_order import AGENT, HOST, SCOPES, WAVE, WORKGROUP, Thread

UNSPECIFIED = "relies on unspecified behaviour"


class Effect(NamedTuple):
    """One memory access of a wavefront: ``size`` bytes at each of ``addresses`` (uint64) by ``lanes``.

    ``kind``: load, store or atomic; ``scope``: its reach as an atomic. ``outside``: it reads a value that another
    process may have written, and only then.
    """

    kind: str
    scope: int
    instruction: Instruction
    size: int
    addresses: np.ndarray
    lanes: np.ndarray
    outside: bool = False


def overwrites(kind: str, instruction: Instruction) -> bool:
    """Return whether a write ignores the value before it: a store, or a swap whose result is not returned."""
    return kind == STORE or ("_atomic_swap" in instruction.mnemonic and " sc0" not in instruction.text)


class Event(NamedTuple):
    """One access of a thread, its ``number``-th: ``size`` bytes at each of ``addresses`` by ``lanes``.

    ``scope`` is its reach as an atomic. ``aligned``: each address of a scoped load or store is a multiple of
    ``size``; those of other instructions fault if they are not.
    """

    thread: Thread
    number: int
    kind: str
    scope: int
    instruction: Instruction
    size: int
    addresses: np.ndarray
    lanes: np.ndarray
    aligned: bool

    @classmethod
    def of(cls, effect: Effect, thread: Thread, number: int) -> Event:
        """Return ``effect`` as the ``number``-th access of ``thread``."""
        # A compare-and-swap may count as an access to a part of its bytes only, at any address.
        checked = effect.scope > WAVE and "_atomic_" not in effect.instruction.mnemonic
        aligned = not (checked and (effect.addresses % np.uint64(effect.size)).any())
        return cls(
            thread, number, effect.kind, effect.scope, effect.instruction, effect.size, effect.addresses, effect.lanes,
            aligned,
        )  # fmt: skip

    @property
    def atomic(self) -> bool:
        """True for scoped, aligned accesses of up to 8 bytes, single-copy atomic in LLVM (the widest atomic is 64
        bits)."""
        return self.scope > WAVE and self.size <= 8 and self.aligned

    @property
    def overwrites(self) -> bool:
        return overwrites(self.kind, self.instruction)

    @property
    def repeated(self) -> bool:
        """True if several lanes overwrite the same bytes: each of them is a write of its own."""
        return len(self.addresses) > 1 and self.overwrites and len(np.unique(self.addresses)) < len(self.addresses)

    @property
    def reach(self) -> tuple[int, bool]:
        return self.scope, self.atomic

    def lane(self, address: int) -> int:
        """Return the first lane that accessed the byte at ``address``."""
        offsets = np.uint64(address) - self.addresses
        return int(self.lanes[int(np.flatnonzero(offsets < self.size)[0])])

    def describe(self, address: int) -> str:
        launch, kind = self.thread.launch, self.kind if self.kind in (LOAD, STORE) else "atomic"
        if launch.kernel == HOST:
            return (
                f"{kind} of {self.size} bytes by {HOST} of rank {self.thread.rank}, in the order of its launches, "
                f"{self.instruction.text}, at {self.instruction.source}"
            )
        scope = f" at {SCOPES[self.scope]} scope" if self.scope > WAVE else ""
        return (
            f"{kind} of {self.size} bytes{scope} by kernel {launch.kernel}, rank {self.thread.rank}, work-group "
            f"{launch.group_id(self.thread.group)}, wavefront {self.thread.wave}, lane {self.lane(address)}, "
            f"instruction {self.instruction.text!r}, at {self.instruction.source}"
        )

    def report(self, address: int) -> dict[str, object]:
        """Return ``describe`` as plain data."""
        launch = self.thread.launch
        return {
            "kernel": launch.kernel,
            "rank": self.thread.rank,
            "group": list(launch.group_id(self.thread.group)),
            "wavefront": self.thread.wave,
            "lane": self.lane(address),
            "kind": self.kind,
            "scope": SCOPES[self.scope],
            "instruction": self.instruction.text,
            "listing_line": self.instruction.line,
            "source": [str(frame) for frame in self.instruction.frames],
        }


def describe(first: Event, second: Event, address: int, size: int, why: str) -> tuple[str, dict[str, Any]]:
    """Return the message and the details of a ``DataRace`` on ``size`` bytes from ``address``."""
    where = second.thread.launch.place(address)
    message = (
        f"{DataRace.BEGINS}{size} bytes at {where}, {why}:\n"
        f"  first  {first.describe(address)}\n  second {second.describe(address)}"
    )
    source = [str(frame) for frame in second.instruction.frames]
    both = {"first": first.report(address), "second": second.report(address), "source": source}
    return message, {**both, "why": why, "address": address, "size": size, "allocation": where}


def missing(first: Event, second: Event) -> str:
    """Return the reason why nothing orders ``first`` before ``second``, as far as the clocks show."""
    relation = second.thread.relation(first.thread)
    other = {WORKGROUP: "wavefront", AGENT: "work-group"}.get(relation, "rank")
    if first.atomic and second.atomic:
        narrow = min(first.scope, second.scope)
        if narrow >= relation:
            return f"the second {other} saw the value of one lane, and those of the other lanes may still come"
        return f"both are atomic, but {SCOPES[narrow]} scope does not include another {other}"
    for access in (first, second):
        if not access.aligned:
            return f"the {access.kind} is not aligned to its size, so it is not atomic"
    hint = ""
    if (first.scope > WAVE) != (second.scope > WAVE):
        plain, atomic = (first, second) if second.scope > WAVE else (second, first)
        hint = f"; the {plain.kind} is plain, the {atomic.kind} at {SCOPES[atomic.scope]} scope"
    view = second.thread.views[0]
    orders = [view.known, *view.seen.values()]
    number, reach = first.thread.number, max(relation, WORKGROUP)
    if not any(order.issued.get(number, 0) >= first.number for order in orders):
        return f"nothing orders the second {other} after the first{hint}"
    if not any(order.complete.get(number, 0) >= first.number for order in orders):
        return f"the {first.kind} was not complete (s_waitcnt vmcnt) when the first {other} signalled that it was{hint}"
    bits = "sc1" if relation == AGENT else "sc0 sc1"
    if first.kind != LOAD and first.scope < reach and not any(o[reach].get(number, 0) >= first.number for o in orders):
        return (
            f"the {first.kind} was not written back (buffer_wbl2 {bits}, s_waitcnt vmcnt(0)) when the first {other} "
            f"signalled that it was{hint}"
        )
    return f"the second {other} saw that signal, but did not invalidate its caches (buffer_inv {bits}){hint}"
