"""A kernel, decoded once into basic blocks of steps; nothing is looked up by text while a launch runs.

A block ends where wavefronts may diverge or must wait: at a branch, s_barrier, s_endpgm, s_sleep, or before a branch
target. Inside, it is cut into *segments* at each write of EXEC, so that the number of active lanes is constant in a
segment and counting costs one addition per segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from harness.emulator.faults import ListingError, UnimplementedInstruction
from harness.emulator.listing import symbols
from harness.emulator.listing.instructions import Instruction, Listing
from harness.emulator.listing.parser import parse
from harness.emulator.operations import absent, find, hardware
from harness.emulator.operations.access import Access, Effect
from harness.emulator.operations.fidelity import fidelity
from harness.emulator.operations.table import Builder, Op, Step
from harness.emulator.program import modes
from harness.emulator.program.build import build
from harness.emulator.program.registers import Available
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.state import EXEC, LANES, SCALAR, SCC, VCC, Wavefronts, key, vector_registers

# Ends of a block. SWITCH: another wavefront may run next (in a watched mode that interleaves them). CALL: a jump to an
# address in scalar registers, to a function or back from it.
FALL, JUMP, BRANCH, END, BARRIER, SLEEP, SWITCH, CALL = range(8)

_VCC64, _EXEC64 = key(SCALAR, VCC, "u64"), key(SCALAR, EXEC, "u64")
_BRANCHES: dict[str, Callable[[Wavefronts], np.ndarray]] = {
    "s_cbranch_scc0": lambda wf: ~wf.view[SCC],
    "s_cbranch_scc1": lambda wf: wf.view[SCC],
    "s_cbranch_vccz": lambda wf: wf.view[_VCC64] == 0,
    "s_cbranch_vccnz": lambda wf: wf.view[_VCC64] != 0,
    "s_cbranch_execz": lambda wf: wf.view[_EXEC64] == 0,
    "s_cbranch_execnz": lambda wf: wf.view[_EXEC64] != 0,
}
# The opcodes that end a block: they are implemented here and not in the table of instructions.
ENDS = {
    "s_endpgm": END,
    "s_barrier": BARRIER,
    "s_sleep": SLEEP,
    "s_branch": JUMP,
    "s_setpc_b64": CALL,
    "s_swappc_b64": CALL,
    "s_call_b64": CALL,
    **dict.fromkeys(_BRANCHES, BRANCH),
}


@dataclass
class AccessSite:
    """A global memory instruction: the key of its counters in a launch."""

    index: int
    instruction: Instruction
    kind: str
    width: int


@dataclass
class Segment:
    """Steps with a constant EXEC. ``counts`` has the number of instructions by class, ``inexact`` by opcode those whose
    fidelity is not exact.

    ``step_of`` maps a step to its instruction.
    """

    index: int
    steps: list[Step] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    inexact: dict[str, int] = field(default_factory=dict)


@dataclass
class Block:
    """A basic block. ``polls``: a jump back to ``target`` closes a loop that reads memory that others may write.

    ``goes``, of a CALL, returns the block at which each wavefront continues.
    """

    index: int
    first: int
    segments: list[Segment]
    end: int = FALL
    terminator: Instruction | None = None
    taken: Callable[[Wavefronts], np.ndarray] | None = None
    target: int = -1
    polls: bool = False
    goes: Callable[[Wavefronts], np.ndarray] | None = None


@dataclass(frozen=True)
class PollingLoops:
    """Indices of the segments and instructions inside of polling loops, see ``program.polling``."""

    segments: frozenset[int]
    instructions: frozenset[int]


@dataclass(eq=False)
class Program:
    """A decoded kernel; immutable while it runs, shared by all its launches, equal to itself only.

    ``polling`` and ``communicates`` (see the modules ``polling`` and ``communication``) are filled at their first use.
    """

    listing: Listing
    blocks: list[Block]
    segments: list[Segment]
    accesses: list[AccessSite]
    vgprs: int
    polling: PollingLoops | None = None
    communicates: bool | None = None
    heat: Any = None
    """How hot the program is, and its translation: see ``driver.translated``."""
    facts: Any = None
    """Facts of its instructions, from the watched modes ``check`` and ``trace``."""

    @property
    def name(self) -> str:
        return self.listing.name

    @property
    def loops(self) -> bool:
        """True if a branch leads back."""
        return any(0 <= block.target <= block.index for block in self.blocks)


@dataclass(frozen=True)
class Decoded:
    """One decoded instruction: facts for a watched mode, and the step that it instruments (None: no effect)."""

    instruction: Instruction
    entry: Op | Builder
    encoding: str
    step: Step | None
    access: Access | None
    accum_offset: int


class Instrument(Protocol):
    """Interface by which a watched mode changes a program while it is decoded."""

    interleaves: bool
    """True if wavefronts may be switched at every memory instruction, wait and cache operation."""

    def instrument(self, decoded: Decoded) -> Step | None:
        """Return the step to execute in place of ``decoded.step``."""
        ...

    def decoded(self, program: Program) -> None:
        """Called when all instructions of a program have been decoded and instrumented."""
        ...

    def before_end(self, instruction: Instruction) -> Step | None:
        """Return a step to execute before the branch, s_barrier, s_sleep or s_endpgm that ends a block."""
        ...


@dataclass
class Context:
    """Facts for the builders of instructions while decoding. ``arch`` is the target: ``gfx942`` or ``gfx950``."""

    arch: str
    accum_offset: int
    accesses: list[AccessSite]
    varying: int = 0
    available: Available | None = None

    @property
    def target(self) -> tuple[str, int, int]:
        """Everything that the step of an ALU instruction depends on besides the instruction."""
        return self.arch, self.accum_offset, self.varying

    def access(self, instruction: Instruction, kind: str, width: int) -> int:
        """Register a global memory access of ``width`` bytes per lane; the result indexes the launch's counts."""
        self.accesses.append(AccessSite(len(self.accesses), instruction, kind, width))
        return len(self.accesses) - 1

    def operand(self, text: str) -> operands.Operand:
        return operands.parse(text, self.accum_offset)

    def source(self, operand: operands.Operand, kind: str, scalar: bool = False) -> int:
        return operands.source_key(operand, kind, scalar)

    def without_first_operand(self, instruction: Instruction) -> Instruction:
        return replace(instruction, operands=instruction.operands[1:])


def decode(text: str | Listing, entry: int | None = None, watch: Instrument | None = None) -> Program:
    """Decode a listing, as text or already parsed; ``watch`` is the watched mode that instruments it.

    ``entry``: the index of the first instruction, by default the hardware's (after the fallback prologue if kernargs
    are preloaded). Raises ``ListingError`` for a listing that cannot be run and ``UnimplementedInstruction`` for an
    opcode that the emulator lacks.
    """
    listing = parse(text) if isinstance(text, str) else text
    start = listing.entry if entry is None else entry
    code = listing.instructions
    context = Context(
        listing.arch, listing.directives.get("accum_offset", 0), [], varying(listing), Available.of(listing)
    )
    leaders = {start}
    for i in listing.labels.values():
        leaders.add(i)
    for instruction in code:
        if instruction.mnemonic in ENDS or (
            watch is not None and watch.interleaves and _switches(instruction, listing)
        ):
            leaders.add(instruction.index + 1)
        # These may be executed repeatedly, until the operations they wait for have completed.
        if instruction.mnemonic in ("s_waitcnt", "s_endpgm") and watch is not None and watch.interleaves:
            leaders.add(instruction.index)
    bounds = sorted(i for i in leaders if i < len(code))
    block_at = {first: n for n, first in enumerate(bounds)}
    segments: list[Segment] = []
    blocks = []
    for n, first in enumerate(bounds):
        last = bounds[n + 1] if n + 1 < len(bounds) else len(code)
        blocks.append(_block(n, code[first:last], context, segments, listing, watch))
    for block in blocks:
        if block.terminator is not None and block.end in (JUMP, BRANCH):
            label = ", ".join(block.terminator.operands)
            if label not in listing.labels:
                raise ListingError(f"kernel {listing.name}: branch to an unknown label in {block.terminator.text!r}")
            block.target = block_at[listing.labels[label]]
            block.polls = block.target <= block.index and _polls(code[bounds[block.target] : block.terminator.index])
        elif block.end == CALL:
            block.goes = _call(block.terminator, context, block_at, block_at[start], listing)  # type: ignore[arg-type]
    # The program starts at its first block.
    program = Program(listing, blocks, segments, context.accesses, listing.directives.get("next_free_vgpr", 256))
    _start_at(program, block_at[start])
    if watch is not None:
        watch.decoded(program)
    return program


def _call(
    instruction: Instruction, context: Context, block_at: dict[int, int], first: int, listing: Listing
) -> Callable[[Wavefronts], np.ndarray]:
    """Return the function that performs a call: s_setpc_b64, s_swappc_b64 or s_call_b64, whose target is a label.

    The latter two store the address of the next instruction in their destination.

    ``first`` is the block at which the program starts; it becomes block 0.
    """
    back = symbols.address_of(instruction.index + 1)
    blocks = {symbols.address_of(at): block - first for at, block in block_at.items() if block >= first}

    *destinations, target = instruction.operands
    destination = [context.operand(text).register for text in destinations]
    label = listing.labels.get(target)
    if instruction.mnemonic == "s_call_b64" and label is None:
        raise ListingError(f"kernel {listing.name}: call of an unknown label in {instruction.text!r}")
    source = context.operand(target).register if label is None else 0

    def goes(wf: Wavefronts) -> np.ndarray:
        if label is None:
            halves = wf.s[:, source : source + 2].astype(np.uint64)
            targets = (halves[:, 0] | halves[:, 1] << np.uint64(32)).tolist()
        else:
            targets = [symbols.address_of(label)] * len(wf)
        for register in destination:
            wf.s[:, register], wf.s[:, register + 1] = back & 0xFFFFFFFF, back >> 32
        for wave, address in enumerate(targets):
            if address not in blocks:
                message = f"jump to {address:#x}, where the kernel has no code"
                wf.chunk.raise_fault(message, wf, instruction, wave * LANES, address=address)
        return np.array([blocks[address] for address in targets])

    return goes


def _start_at(program: Program, first: int) -> None:
    """Drop the blocks before the entry: the fallback prologue is never executed."""
    if first == 0:
        return
    program.blocks = program.blocks[first:]
    for block in program.blocks:
        block.index -= first
        if block.target >= 0:
            block.target -= first
            if block.target < 0:
                raise ListingError(f"kernel {program.name}: a branch targets the preload prologue")


def _block(
    index: int,
    code: list[Instruction],
    context: Context,
    segments: list[Segment],
    listing: Listing,
    watch: Instrument | None,
) -> Block:
    block = Block(index, code[0].index, [])
    if watch is not None and watch.interleaves and _switches(code[-1], listing):
        block.end = SWITCH

    def new_segment() -> Segment:
        segment = Segment(len(segments))
        segments.append(segment)
        block.segments.append(segment)
        return segment

    segment = new_segment()
    for instruction in code:
        if instruction.mnemonic in ENDS:
            block.end = ENDS[instruction.mnemonic]
            block.terminator = instruction
            block.taken = _BRANCHES.get(instruction.mnemonic)
            klass = {BARRIER: "barrier", SLEEP: "wait"}.get(block.end, "branch")
            segment.counts[klass] = segment.counts.get(klass, 0) + 1
            if watch is not None and (step := watch.before_end(instruction)) is not None:
                segment.steps.append(step)
                segment.instructions.append(instruction)
            break
        decoded = _decode(instruction, context, listing)
        klass, step = decoded.entry.klass, decoded.step if watch is None else watch.instrument(decoded)
        segment.counts[klass] = segment.counts.get(klass, 0) + 1
        opcode = decoded.entry.name.partition("@")[0]
        if fidelity(opcode, listing.arch).grade != "exact":
            segment.inexact[opcode] = segment.inexact.get(opcode, 0) + 1
        if step is not None:
            segment.steps.append(step)
            segment.instructions.append(instruction)
        if _writes_exec(instruction) and instruction is not code[-1]:
            segment = new_segment()
    return block


def _decode(instruction: Instruction, context: Context, listing: Listing) -> Decoded:
    entry, encoding = find(instruction.mnemonic, listing.arch)
    if entry is None:
        why = absent.reason(instruction.mnemonic)
        raise _unimplemented(instruction, listing, f"the opcode is not implemented{': ' * bool(why)}{why}")
    try:
        if isinstance(entry, Builder):
            built = entry.build(instruction, context)
        else:
            modifiers = tuple(instruction.modifiers.items())
            built = _alu(_Form(instruction.mnemonic, instruction.operands, modifiers, *context.target))
    except UnimplementedInstruction as error:
        raise _unimplemented(instruction, listing, str(error)) from error
    except ListingError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        why = f"its operands or modifiers have a form that the emulator does not know ({error})"
        raise _unimplemented(instruction, listing, why) from error
    step, access = (built.step, built.access) if isinstance(built, Effect) else (built, None)
    assert context.available is not None  # sanity check
    context.available.check(instruction, access)
    return Decoded(instruction, entry, encoding, step, access, context.accum_offset)


class _Form(NamedTuple):
    """Everything that the step of an ALU instruction depends on."""

    mnemonic: str
    operands: tuple[str, ...]
    modifiers: tuple[tuple[str, str], ...]
    arch: str
    accum_offset: int
    varying: int


@lru_cache(maxsize=1 << 16)
def _alu(form: _Form) -> Step:
    """Return the step of an ALU instruction, which has no state: most instructions of a kernel are in others too.

    It is built when it is first executed, since native code executes most. Here it is only known that it can be: the
    same has been built in other registers.
    """
    built: Step | None = None

    def step(wf: Wavefronts) -> None:
        nonlocal built
        if built is None:
            built = _build_alu(form)
        built(wf)

    try:
        _check_alu(form._replace(operands=tuple(_REGISTERS.sub(_low, text) for text in form.operands)))
    except (UnimplementedInstruction, ValueError, TypeError, LookupError, AttributeError, OverflowError):
        built = _build_alu(form)  # fails, and names its operands
    return step


_REGISTERS = re.compile(r"(?<![\w.])([vsa])(?:(\d+)|\[(\d+):(\d+)\])(?!\w)")


def _low(match: re.Match[str]) -> str:
    """Return the lowest registers that are aligned like those of a match."""
    if match[2]:
        return f"{match[1]}{int(match[2]) % 2}"
    first, last = int(match[3]), int(match[4])
    return f"{match[1]}[{first % 2}:{last - first + first % 2}]"


def _build_alu(form: _Form) -> Step:
    op, encoding = find(form.mnemonic, form.arch)
    assert isinstance(op, Op)  # sanity check
    instruction = Instruction(0, 0, "", form.mnemonic, form.operands, dict(form.modifiers), ())
    return build(op, encoding, instruction, form.accum_offset, form.varying)


_check_alu = lru_cache(maxsize=1 << 14)(_build_alu)


def varying(listing: Listing) -> int:
    """Return the bits of MODE that the kernel may set to other values than Triton's defaults."""
    start = modes.initial(listing.directives)
    varying = start ^ modes.USUAL
    for instruction in listing.instructions:
        varying |= hardware.written(instruction)
    return varying


def _switches(instruction: Instruction, listing: Listing) -> bool:
    """Return True for an instruction before and after which the order of wavefronts can be observed."""
    entry, _ = find(instruction.mnemonic, listing.arch)
    return entry is not None and (
        entry.klass in ("vmem", "atomic") or instruction.mnemonic in ("s_waitcnt", "buffer_wbl2", "buffer_inv")
    )


def _unimplemented(instruction: Instruction, listing: Listing, why: str) -> UnimplementedInstruction:
    return UnimplementedInstruction(
        f"kernel {listing.name}, listing line {instruction.line}: {instruction.text!r}: {why} (at {instruction.source})"
    )


def _writes_exec(instruction: Instruction) -> bool:
    name = instruction.mnemonic
    return (
        name.endswith(("saveexec_b64", "wrexec_b64"))
        or name.startswith("v_cmpx")
        or instruction.operands[:1] in (("exec",), ("exec_lo",), ("exec_hi",))
    )


def _polls(body: list[Instruction]) -> bool:
    """Return True if a loop body reads memory that another wavefront may change.

    That is an atomic, a coherent load or an invalidate.
    """
    return any(
        "_atomic_" in i.mnemonic
        or i.mnemonic == "buffer_inv"
        or ("_load_" in i.mnemonic and i.modifiers.keys() & {"sc0", "sc1"})
        for i in body
    )


def initial_registers(program: Program, waves: int) -> tuple[np.ndarray, np.ndarray]:
    """Return zeroed vector and scalar registers for ``waves`` wavefronts."""
    v = vector_registers((program.vgprs + 1) // 2 + 1, waves)
    v[...] = 0
    return v, np.zeros((waves, 128), np.uint32)
