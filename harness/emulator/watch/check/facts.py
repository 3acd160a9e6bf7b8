"""Facts of a program's instructions by which native code decides that mode ``check`` has nothing to report.

The outstanding memory operations at an instruction depend on the path alone, so ``waits`` checks all paths once.
Definitions of registers depend on EXEC: ``stretches`` makes the lists by which native code checks them as it runs, one
list for several instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import Access
from harness.emulator.program.decode import BARRIER, BRANCH, CALL, END, JUMP, Block, Program
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.queues import SCALAR_MEMORY, Operation, Path, Queues

_VECTORS = registers.EVERY_VECTOR
_MOST_STATES = 256
"""Different queues at the start of a block; more are not examined."""


@dataclass(frozen=True)
class Facts:
    """An instruction, with sets of registers (``shadow.registers``).

    ``names``: must not be due. ``reads``: if they are defined, then so are ``writes`` afterwards; of the vector
    registers, those in ``everywhere`` in all lanes, the others in the active ones. ``operations``: issued.
    ``in_order``, ``results``: see ``mode._issuing``. ``wait``: counts of an s_waitcnt. ``interpreted``: native code
    cannot check the instruction. ``first_lane``, ``high``: see ``propagate.Flow``.
    """

    instruction: Instruction
    names: int = 0
    reads: int = 0
    writes: int = 0
    everywhere: int = 0
    operations: tuple[Operation, ...] = ()
    wait: tuple[int, int] | None = None
    access: Access | None = None
    interpreted: bool = False
    first_lane: bool = False
    high: tuple[int, int] | None = None

    @property
    def results(self) -> int:
        return self.operations[0].results if self.operations else 0


FactsByIndex = Mapping[int, Facts]


# -- outstanding operations --------------------------------------------------------------------------------------------

_State = tuple[tuple[tuple[str, int, bool], ...], tuple[tuple[str, int, bool], ...]]


def waits(program: Program, facts: FactsByIndex) -> bool:
    """Examine the queues of memory operations on all paths.

    Returns True if no instruction can use a register that is due, and at no s_barrier an access to the data share is
    outstanding. False also if that cannot be examined.
    """
    starts = [block.first for block in program.blocks]
    ends = [*starts[1:], len(program.listing.instructions)]
    seen: list[set[_State]] = [set() for _ in program.blocks]
    waiting: list[tuple[int, _State]] = [(0, ((), ()))]
    while waiting:
        number, state = waiting.pop()
        if state in seen[number]:
            continue
        seen[number].add(state)
        block = program.blocks[number]
        if len(seen[number]) > _MOST_STATES or block.end == CALL:
            return False
        after = _executed(state, (facts[i] for i in range(starts[number], ends[number]) if i in facts))
        if after is None:
            return False
        if block.end == BARRIER and any(lds for part in after for _, _, lds in part):
            return False
        waiting += [(other, after) for other in followers(block, len(program.blocks))]
    return True


def followers(block: Block, count: int) -> list[int]:
    """Return the numbers of the blocks that may follow one of ``count``."""
    following = [block.target] if block.end in (JUMP, BRANCH) else []
    if block.end not in (JUMP, END) and block.index + 1 < count:
        following.append(block.index + 1)
    return following


def _executed(state: _State, facts: Iterable[Facts]) -> _State | None:
    """Return the queues after instructions; None if one uses a register that is due."""
    queues = Queues([Path(None, *([Operation(*_whole(o)) for o in part] for part in state))])
    for part in state:
        for _, results, _ in part:
            queues.due |= results
    for each in facts:
        if each.wait is not None:
            queues.wait(*each.wait)
        if queues.due & each.names:
            in_order = order_of(each.operations)
            if queues.find(each.names & ~each.results, None) or queues.find(each.names & each.results, in_order):
                return None
        for operation in each.operations:
            queues.issue(operation)
    (path,) = queues.paths
    vm, lgkm = (tuple((o.unit, o.results, o.writes_lds) for o in part) for part in (path.vm, path.lgkm))
    return vm, lgkm


def _whole(operation: tuple[str, int, bool]) -> tuple[str, Instruction, int, bool]:
    unit, results, writes_lds = operation
    return unit, _NO_INSTRUCTION, results, writes_lds


_NO_INSTRUCTION = Instruction(0, 0, "", "", (), {}, ())


def order_of(operations: tuple[Operation, ...]) -> str | None:
    """Return the unit in which a later operation into the same register overwrites an earlier one, None if none."""
    unit = operations[0].unit if len(operations) == 1 else None
    return None if unit == SCALAR_MEMORY else unit


# -- definitions of registers ------------------------------------------------------------------------------------------


@dataclass
class Stretch:
    """Successive instructions with one check of their registers, before the first of them."""

    facts: list[Facts] = field(default_factory=list)

    @property
    def registers(self) -> tuple[list[int], ...]:
        """Return the registers read in active lanes, read in all lanes, read in all lanes after they were written in
        active ones, written in active lanes, and written in all lanes.

        Read are those that no instruction of the stretch wrote before.
        """
        masked = everywhere = elsewhere = written = wholly = 0
        for each in self.facts:
            all_lanes = each.everywhere | ~_VECTORS
            masked |= each.reads & ~all_lanes & ~(written | wholly)
            everywhere |= each.reads & all_lanes & ~(written | wholly)
            elsewhere |= each.reads & all_lanes & written & ~wholly
            written |= each.writes & ~all_lanes
            wholly |= each.writes & all_lanes
        names = masked & ~everywhere, everywhere, elsewhere & ~everywhere, written & ~wholly, wholly
        return tuple(numbers(each) for each in names)

    @property
    def first_lane(self) -> bool:
        return any(each.first_lane for each in self.facts)


def suspects(program: Program, facts: FactsByIndex, undefined: int) -> set[int]:
    """Return the indices of instructions that probably read undefined bits: each gets a check of its own.

    ``undefined``: registers at entry. A write counts as one of all lanes, so this is a guess.
    """
    starts = [block.first for block in program.blocks]
    ends = [*starts[1:], len(program.listing.instructions)]
    before = [0] * len(program.blocks)
    before[0] = undefined
    indices: set[int] = set()
    waiting, visited = [0], set[int]()
    while waiting:
        number = waiting.pop()
        visited.add(number)
        bad = before[number]
        for index in range(starts[number], ends[number]):
            if (each := facts.get(index)) is None:
                continue
            if each.reads & bad:
                indices.add(index)
                bad |= each.writes
            else:
                bad &= ~each.writes
        for other in followers(program.blocks[number], len(program.blocks)):
            if other not in visited or bad & ~before[other]:
                before[other] |= bad
                waiting.append(other)
    return indices


def stretches(facts: FactsByIndex, indices: Iterable[int], alone: set[int]) -> list[Stretch]:
    """Cut the instructions ``indices`` of a segment into stretches; those in ``alone`` are one each."""
    cut: list[Stretch] = []
    ends = True
    for index in indices:
        each = facts.get(index)
        if each is None or not (each.reads or each.writes):
            continue
        if ends or index in alone:
            cut.append(Stretch())
        cut[-1].facts.append(each)
        ends = index in alone
    return cut


def numbers(names: int) -> list[int]:
    """Return the numbers of the registers in a set."""
    listed = []
    while names:
        name = names & -names
        names ^= name
        listed.append(name.bit_length() - 1)
    return listed
