"""The watch of mode ``check``: combines its parts, instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from harness.emulator.execution.launch import Chunk, Launch
from harness.emulator.faults import BarrierDivergence
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import (
    CopyAccess,
    FlatAccess,
    FormatAccess,
    GlobalAccess,
    LdsAccess,
    ScalarAccess,
    ScratchAccess,
)
from harness.emulator.operations.table import Op, Step
from harness.emulator.program.decode import Decoded, Program
from harness.emulator.watch.base import Watch
from harness.emulator.watch.check import compiled, crosslane, hazards, private, propagate, report, share
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.facts import Facts
from harness.emulator.watch.check.heap import Heap, Region
from harness.emulator.watch.check.queues import DATA_SHARE, SCALAR_MEMORY, VECTOR_MEMORY, Operation, counts_of
from harness.emulator.watch.check.shadow import Shadow, touched
from harness.emulator.watch.choices import Choices
from harness.emulator.wavefront.state import EXEC, LANES, SCALAR, SCC, VCC, Wavefronts, key

_EXEC = registers.scalars(EXEC, 2)
_VCC = key(SCALAR, VCC, "u64")


class Check(Watch):
    """See the package docstring.

    ``closed``: only the launch itself changes the memory it reads, so a launch that waits for ever is reported.
    ``strict_alignment``: wide accesses to global memory must be aligned; ``strict_lds_alignment``: those to LDS too,
    whose addresses the compiler chooses. False: only where the hardware requires it.
    ``strict_barriers``: wavefronts of a work-group must wait at the same s_barrier; False: they may wait at different
    ones, as often as each other. None: strict, except in kernels with s_setprio, which Triton writes in ping-pong
    schedules only: half of the wavefronts run one s_barrier behind the others on purpose.
    ``wait_states``: report instructions with too few wait states between them, see ``hazards``.
    ``red_zones``: in a segment with carved parts, only these parts are accessible.
    """

    name: ClassVar[str] = "check"

    def __init__(
        self,
        choices: Choices | None = None,
        closed: bool = False,
        strict_alignment: bool = True,
        strict_lds_alignment: bool = False,
        strict_barriers: bool | None = None,
        wait_states: bool = True,
        red_zones: bool = True,
    ) -> None:
        super().__init__(choices)
        self.red_zones = red_zones
        self.closed = closed
        self._strict_lds_alignment = strict_lds_alignment
        self._strict_barriers = strict_barriers
        self._wait_states = wait_states
        # The instructions of the program that is being decoded, by index.
        self._sites: dict[int, hazards.Site] = {}
        self._facts: dict[int, Facts] = {}
        self._heap = Heap(strict_alignment)
        self._share_by_chunk: share.ShareByChunk = WeakKeyDictionary()
        # The barriers at which the wavefronts of a chunk wait, and the instructions at which they ended.
        self._waiting: WeakKeyDictionary[Chunk, dict[int, Instruction]] = WeakKeyDictionary()
        self._ended: WeakKeyDictionary[Chunk, dict[int, Instruction]] = WeakKeyDictionary()
        # Whether the wavefronts of a chunk's work-groups must wait at the same s_barrier.
        self._strict: WeakKeyDictionary[Chunk, bool] = WeakKeyDictionary()
        compiled.prepare()

    def forget(self, address: int, size: int) -> None:
        self._heap.forget(address, size)

    # -- launches ------------------------------------------------------------------------------------------------------

    def start(self, launch: Launch) -> None:
        self._heap.start(launch)

    def started(self, chunk: Chunk) -> None:
        chunk.wavefronts.shadow = registers.at_entry(chunk)
        self._share_by_chunk[chunk] = share.Share(chunk)
        self._waiting[chunk] = {}
        self._ended[chunk] = {}
        self._strict[chunk] = self._is_strict(chunk.launch)

    def _is_strict(self, launch: Launch) -> bool:
        """Return whether the wavefronts of a work-group must wait at the same s_barrier."""
        code, strict = launch.program.listing.instructions, self._strict_barriers
        return all(i.mnemonic != "s_setprio" for i in code) if strict is None else strict

    # -- s_barrier -----------------------------------------------------------------------------------------------------

    def arrived(self, wf: Wavefronts, barrier: int) -> None:
        self._share_by_chunk[wf.chunk].arrive(wf)
        terminator = wf.chunk.launch.program.blocks[barrier].terminator
        assert terminator is not None  # sanity check
        self._waiting[wf.chunk].update(dict.fromkeys(wf.wave.tolist(), terminator))

    def ended(self, wf: Wavefronts) -> None:
        self._share_by_chunk[wf.chunk].end(wf)
        terminator = wf.chunk.launch.program.blocks[wf.block].terminator
        assert terminator is not None  # sanity check
        self._ended[wf.chunk].update(dict.fromkeys(wf.wave.tolist(), terminator))

    def released(self, chunk: Chunk, groups: list[int]) -> None:
        waiting, ended = self._waiting[chunk], self._ended[chunk]
        per_group, strict = chunk.launch.waves_per_group, self._strict[chunk]
        for group in groups:
            waves = range(group * per_group, (group + 1) * per_group)
            at = {wave: waiting.pop(wave) for wave in waves if wave in waiting}
            _check_barrier(chunk, strict, at, {wave: ended[wave] for wave in waves if wave in ended})
        self._share_by_chunk[chunk].release(chunk, groups)

    # -- native code ---------------------------------------------------------------------------------------------------

    @property
    def regions(self) -> list[Region]:
        """The forgotten regions of memory that have bytes which were not written since."""
        return self._heap.regions

    @property
    def strict_alignment(self) -> tuple[bool, bool]:
        """The flags ``strict_alignment`` and ``strict_lds_alignment``."""
        return self._heap.strict_alignment, self._strict_lds_alignment

    def use_share(self, chunk: Chunk, own: share.Share) -> None:
        """Use ``own`` for the instructions of a chunk whose wavefronts native code started."""
        self._share_by_chunk[chunk] = own

    def check_barrier(self, chunk: Chunk, at: dict[int, Instruction], ended: dict[int, Instruction]) -> None:
        """Check the s_barrier ``at`` which the wavefronts of a work-group wait; ``ended``: those that have ended."""
        _check_barrier(chunk, self._is_strict(chunk.launch), at, ended)

    # -- instructions --------------------------------------------------------------------------------------------------

    def before_end(self, instruction: Instruction) -> Step | None:
        if instruction.mnemonic in ("s_setpc_b64", "s_swappc_b64"):
            return _jump(instruction)
        names = 0  # EXEC is checked where it is written
        if instruction.mnemonic.startswith("s_cbranch_scc"):
            names = registers.SCC
        if instruction.mnemonic.startswith("s_cbranch_vcc"):
            names = registers.scalars(VCC, 2)
        if not names:
            return None
        self._facts[instruction.index] = Facts(instruction, names, names)
        return _branch(instruction, names)

    def decoded(self, program: Program) -> None:
        sites, self._sites = self._sites, {}
        program.facts, self._facts = self._facts, {}
        if self._wait_states:
            hazards.check(program, sites)

    def _note(self, decoded: Decoded, names: int, results: int, *operations: Operation, native: bool = True) -> None:
        """Note the registers of a memory instruction for the check of wait states, and for native code.

        ``native``: native code can check the instruction.
        """
        instruction, access = decoded.instruction, decoded.access
        self._sites[instruction.index] = hazards.memory_site(decoded, names, results)
        # The results come first.
        sources = replace(instruction, operands=instruction.operands[1:]) if results else instruction
        reads = touched(sources, decoded.accum_offset) & ~_EXEC
        if getattr(access, "half", 0):
            reads |= results  # the other half stays
        self._facts[instruction.index] = Facts(
            instruction, names, reads, results, operations=operations, access=access, interpreted=not native
        )

    def _note_flow(self, instruction: Instruction, names: int, flow: propagate.Flow, *operations: Operation) -> None:
        """Note the registers of an ALU instruction for native code."""
        both = flow.reads | flow.writes
        self._facts[instruction.index] = Facts(
            instruction, names | (0 if operations else both), flow.reads | flow.keeps, flow.writes, flow.everywhere,
            operations, interpreted=flow.any_register, first_lane=flow.first_lane, high=flow.high,
        )  # fmt: skip

    def instrument(self, decoded: Decoded) -> Step | None:
        instruction = decoded.instruction
        if instruction.mnemonic == "s_waitcnt":
            self._facts[instruction.index] = Facts(instruction, wait=counts_of(instruction))
            return _wait(instruction)
        plain, access = decoded.step, decoded.access
        names = touched(instruction, decoded.accum_offset) & ~_EXEC
        if isinstance(access, FlatAccess):
            assert plain is not None  # sanity check
            results, body = private.flat(access, plain, self._heap, self._share_by_chunk, self._strict_lds_alignment)
            # Counted by both counters, since the access may use either unit.
            operations = [Operation(unit, instruction, results) for unit in (VECTOR_MEMORY, SCALAR_MEMORY)]
            self._note(decoded, names, results, *operations, native=False)
            return _issuing(instruction, names, body, *operations)
        if isinstance(access, GlobalAccess):
            assert plain is not None  # sanity check
            results, body = self._heap.access(access, plain)
            operation = Operation(VECTOR_MEMORY, instruction, results)
            self._note(decoded, names, results, operation)
            return _issuing(instruction, names, body, operation)
        if isinstance(access, FormatAccess):
            assert plain is not None  # sanity check
            results, body = self._heap.formatted(access, plain)
            operation = Operation(VECTOR_MEMORY, instruction, results)
            self._note(decoded, names, results, operation)
            return _issuing(instruction, names, body, operation)
        if isinstance(access, LdsAccess):
            assert plain is not None  # sanity check
            results, body = share.access(access, plain, self._share_by_chunk, self._strict_lds_alignment)
            operation = Operation(DATA_SHARE, instruction, results, writes_lds=True)
            self._note(decoded, names, results, operation)
            return _issuing(instruction, names, body, operation)
        if isinstance(access, CopyAccess):
            assert plain is not None  # sanity check
            operation = Operation(VECTOR_MEMORY, instruction, writes_lds=True)
            self._note(decoded, names, 0, operation)
            body = self._heap.copy(access, share.copy(access, plain, self._share_by_chunk))
            return _issuing(instruction, names, body, operation)
        if isinstance(access, ScratchAccess):
            assert plain is not None  # sanity check
            results, body = private.scratch(access, plain, self._share_by_chunk)
            operation = Operation(VECTOR_MEMORY, instruction, results)
            self._note(decoded, names, results, operation, native=False)
            return _issuing(instruction, names, body, operation)
        if isinstance(access, ScalarAccess):
            assert plain is not None  # sanity check
            results = registers.scalars(access.target, access.words) if access.returns else 0
            address = touched(replace(instruction, operands=instruction.operands[1:]), 0)
            body = self._heap.scalar(access, plain, address)
            operation = Operation(SCALAR_MEMORY, instruction, results)
            reads = address | registers.scalars(access.target, access.data)
            self._facts[instruction.index] = Facts(
                instruction, names, reads & ~_EXEC, results, operations=(operation,), access=access
            )
            return _issuing(instruction, names, body, operation)
        if instruction.mnemonic in ("buffer_wbl2", "buffer_inv"):
            operation = Operation(VECTOR_MEMORY, instruction)
            self._facts[instruction.index] = Facts(instruction, operations=(operation,))
            return _issuing(instruction, 0, lambda wf, shadow: None, operation)
        if plain is None:
            self._sites[instruction.index] = hazards.site(decoded, names, 0)
            return None
        flow = propagate.alu(decoded) if isinstance(decoded.entry, Op) else crosslane.flow(decoded)
        self._sites[instruction.index] = hazards.site(decoded, flow.reads, flow.writes)
        if decoded.entry.klass == "smem":
            operation = Operation(SCALAR_MEMORY, instruction, flow.writes)
            self._note_flow(instruction, names, flow, operation)
            return _issuing(instruction, names, _flowing(flow, plain), operation)
        if decoded.entry.klass == "lds":
            # A lane move through the data share's crossbar counts like a load.
            operation = Operation(DATA_SHARE, instruction, flow.writes)
            self._note_flow(instruction, names, flow, operation)
            return _issuing(instruction, names, _flowing(flow, plain), operation)
        self._note_flow(instruction, names, flow)
        return _plain(instruction, names, flow, plain)


def _plain(instruction: Instruction, names: int, flow: propagate.Flow, plain: Step) -> Step:
    both, spread = flow.reads | flow.writes, flow.spread
    names |= both

    def step(wf: Wavefronts) -> None:
        shadow: Shadow = wf.shadow
        if shadow.queues.due & names:
            _check_due(wf, shadow, instruction, names, None)
        if shadow.dirty & both:
            spread(wf, shadow)
        plain(wf)

    return step


def _flowing(flow: propagate.Flow, plain: Step) -> Callable[[Wavefronts, Shadow], None]:
    both, spread = flow.reads | flow.writes, flow.spread

    def body(wf: Wavefronts, shadow: Shadow) -> None:
        if shadow.dirty & both:
            spread(wf, shadow)
        plain(wf)

    return body


def _issuing(
    instruction: Instruction, names: int, body: Callable[[Wavefronts, Shadow], None], *operations: Operation
) -> Step:
    """Return the step of a memory instruction: its registers must not be due; its results are due from now on."""
    results = operations[0].results
    # A later load into the same register overwrites an earlier one, in units that complete in order.
    in_order = operations[0].unit if operations[0].unit != SCALAR_MEMORY and len(operations) == 1 else None

    def step(wf: Wavefronts) -> None:
        shadow: Shadow = wf.shadow
        if shadow.queues.due & names:
            _check_due(wf, shadow, instruction, names & ~results, None)
            _check_due(wf, shadow, instruction, results, in_order)
        body(wf, shadow)
        for operation in operations:
            shadow.queues.issue(operation)

    return step


def _branch(instruction: Instruction, names: int) -> Step:
    """Return the step before a branch: its condition must be defined and not due; one known 1 bit of VCC decides."""

    def step(wf: Wavefronts) -> None:
        shadow: Shadow = wf.shadow
        if shadow.queues.due & names:
            _check_due(wf, shadow, instruction, names, None)
        if shadow.dirty & names:
            bad = shadow.bits.view[SCC]
            if names != registers.SCC:
                undefined = shadow.bits.view[_VCC]
                bad = (undefined != 0) & (wf.view[_VCC] & ~undefined == 0)
            if bad.any():
                message = "whether the branch is taken depends on an undefined value"
                report.undefined(wf, instruction, LANES * int(bad.argmax()), message)

    return step


def _jump(instruction: Instruction) -> Step:
    """Return the step before a call or return: its target must be defined; the stored return address becomes so."""
    *destination, target = (
        registers.touched(replace(instruction, operands=(text,)), 0) for text in instruction.operands
    )

    def step(wf: Wavefronts) -> None:
        shadow: Shadow = wf.shadow
        if shadow.queues.due & target:
            _check_due(wf, shadow, instruction, target, None)
        if shadow.dirty & target and (undefined := shadow.undefined_scalar(target)):
            message = "the address of a jump depends on an undefined value"
            report.undefined(wf, instruction, LANES * undefined[0], message)
        for names in destination:
            shadow.define_all(wf, names)

    return step


def _wait(instruction: Instruction) -> Step:
    vm, lgkm = counts_of(instruction)

    def step(wf: Wavefronts) -> None:
        wf.shadow.queues.wait(vm, lgkm)

    return step


def _check_due(wf: Wavefronts, shadow: Shadow, instruction: Instruction, names: int, in_order: str | None) -> None:
    if pending := shadow.queues.find(names, in_order):
        report.missing_wait(wf, instruction, names, *pending)


def _gives_up(code: list[Instruction], barrier: Instruction) -> bool:
    """Return whether an s_trap follows the barrier.

    That is a failed device_assert, which Triton lets wait for the work-group's other wavefronts; the trap is reported.
    """
    return barrier.index + 1 < len(code) and code[barrier.index + 1].mnemonic == "s_trap"


def _check_barrier(chunk: Chunk, strict: bool, at: dict[int, Instruction], ended: dict[int, Instruction]) -> None:
    """Raise ``BarrierDivergence`` if the wavefronts of a work-group do not wait at one s_barrier."""
    code = chunk.launch.program.listing.instructions
    barriers = {instruction.index: instruction for instruction in at.values()}
    if any(_gives_up(code, instruction) for instruction in barriers.values()):
        return
    if not ended and not (strict and len(barriers) > 1):
        return
    first = next(iter(at))
    for wave in sorted({*at, *ended}):
        if strict and wave in at and at[wave] is not at[first]:
            _diverged(chunk, first, at[first], wave, at[wave], "waits at")
        if wave in ended:
            _diverged(chunk, first, at[first], wave, ended[wave], "has ended at")


def _diverged(chunk: Chunk, one: int, at: Instruction, other: int, there: Instruction, does: str) -> None:
    inner = other % chunk.launch.waves_per_group
    row = int(np.flatnonzero(chunk.wavefronts.wave == one)[0])
    chunk.raise_fault(
        f"wavefront {inner} of the work-group {does} {there.text!r} (at {there.source}), not at the s_barrier",
        chunk.wavefronts,
        at,
        row * LANES,
        kind=BarrierDivergence,
        other=there.text,
        other_wavefront=inner,
        other_source=[str(frame) for frame in there.frames],
    )
