"""Mode ``check`` in native code: a program's own native code, with operations that check between its instructions.

The operations (``native.checked``, ``native.checked_share``) decide nothing that is in doubt: they stop the wavefront,
and the interpreter executes the instructions with the steps of the mode (``watch.check``), on the undefined bits of
this wavefront. So only these steps know rules and word faults. A program in which an instruction may use a register
too early (``facts``), or that has instructions which native code does not check, is interpreted.

Wavefronts run one after the other up to an s_barrier, not instruction by instruction, so of several faults of a kernel
another one may be raised than in the interpreter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from harness.emulator.driver.arena import Arena, SlotChunk
from harness.emulator.driver.checked_waves import CheckedWave, GroupShare
from harness.emulator.driver.positions import failed
from harness.emulator.driver.schedule import CHUNK_WAVES
from harness.emulator.driver.translated import Heat, TranslatedScheduler
from harness.emulator.execution.launch import Launch, private_bytes
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction, Listing
from harness.emulator.native import checked, checked_share, execute, record
from harness.emulator.operations.access import ATOMIC, LOAD, STORE, GlobalAccess, LdsAccess, ScalarAccess
from harness.emulator.operations.table import Native, Step
from harness.emulator.program import decode as p
from harness.emulator.program.compiled.translation import Translation, Translator
from harness.emulator.watch.check import Check, shadow
from harness.emulator.watch.check.facts import Facts, Stretch, numbers, stretches, suspects, waits
from harness.emulator.watch.check.queues import Queues
from harness.emulator.wavefront.state import LANES, SGPRS

# Seconds, as in ``translated``: to interpret an instruction with its checks, in addition for each wavefront; and a time
# too short to matter.
INTERPRETING_CHECKS, CHECKING_WAVEFRONT, SHORT = 10e-6, 150e-9, 20e-3

# Kinds of operations. OTHER: neither an instruction nor a check. CHECK: the check of the memory access that follows.
OTHER, STEP, GUARD, CHECK, PASSED = range(5)
_KINDS = {LOAD: checked.READ, STORE: checked.WRITE}


class CheckedHeat(Heat):
    """Decides when a program in mode ``check`` uses native code. ``plain`` returns it without the mode's steps."""

    def __init__(self, program: p.Program, plain: Callable[[], p.Program], watch: Check) -> None:
        super().__init__(make=lambda program: CheckedTranslator(program, plain(), watch))
        self._program = program
        self._examined: bool | None = None

    def find(self, launch: Launch) -> Translation | None:
        """See ``Heat.find``; None if native code cannot check the program."""
        if self._examined is None:
            self._examined = can_check(self._program)
        return super().find(launch) if self._examined else None

    def interpreted(self, launch: Launch, seconds: float) -> None:
        """Note how long the interpreter executed single wavefronts of a launch in native code.

        If it would have taken less time to interpret the launch as a whole, the following ones are.
        """
        if seconds <= SHORT:
            return
        waves = min(launch.groups * launch.waves_per_group, CHUNK_WAVES)
        steps = (len(segment.steps) for segment in self._program.segments)
        executed = sum(count * each for count, each in zip(launch.waves, steps, strict=True))
        whole = executed * (INTERPRETING_CHECKS / waves + CHECKING_WAVEFRONT)
        if seconds > whole:
            self.force(False)


def can_check(program: p.Program) -> bool:
    """Return whether native code can check a program."""
    facts: dict[int, Facts] = program.facts
    return not any(each.interpreted for each in facts.values()) and waits(program, facts)


def decode(listing: Listing, watch: Check, plain: Callable[[], p.Program] | None = None) -> p.Program:
    """Decode a listing for mode ``check``; ``plain`` returns the same program without its steps."""
    program = p.decode(listing, watch=watch)
    program.heat = CheckedHeat(program, plain or partial(p.decode, listing), watch)
    return program


class CheckedTranslator(Translator):
    """Adds the operations that check to those of the program without the mode's steps."""

    def __init__(self, program: p.Program, plain: p.Program, watch: Check) -> None:
        """``program`` has the mode's steps, ``plain`` does not."""
        self._watched = program
        self._facts: dict[int, Facts] = program.facts
        self._undefined = shadow.undefined_at_entry(program.listing.directives)
        self._alone = suspects(program, self._facts, self._undefined)
        self._aligned, self._share_aligned = watch.strict_alignment
        self._shadow = shadow_offset(program)
        self._kinds: dict[int, int] = {}
        super().__init__(plain)

    def finish(self) -> Translation:
        translation = super().finish()
        kinds = [self._kinds.get(i, STEP if place.step is not None else OTHER) for i, place in enumerate(self._places)]
        translation.kinds = kinds
        return translation

    def _check(self, block: p.Block, kind: int, step: Step | None, instruction: Instruction, native: Native) -> None:
        self._kinds[len(self._rows)] = kind
        self._add(block, step, instruction, execute.CALL, native, *native.parameters)

    def _begin(self) -> None:
        table = np.zeros(definitions(self._watched), np.int64)
        for register in range(checked.SCALARS + SGPRS + 1):
            if not self._undefined >> register & 1:
                table[checked.word_of(register)] = -1
        table[checked.SAVED] = 0
        sizes = [each.access.size for each in self._facts.values() if isinstance(each.access, LdsAccess)]
        scale = 0 if any(size & 1 for size in sizes) else 1 if any(size & 2 for size in sizes) else 2
        native = Native(checked.enter, (self._shadow, table.ctypes.data, table.nbytes, scale), (table,))
        self._check(self.program.blocks[0], OTHER, None, self.program.listing.instructions[0], native)

    def _add_segment(self, block: p.Block, segment: p.Segment) -> None:
        end = block.terminator if segment is block.segments[-1] else None
        indices = [instruction.index for instruction in segment.instructions] + ([end.index] if end else [])
        starts = {s.facts[0].instruction.index: s for s in stretches(self._facts, indices, self._alone)}
        for step, instruction in zip(segment.steps, segment.instructions, strict=True):
            if instruction.index in starts:
                self._guard(block, starts[instruction.index])
            facts = self._facts.get(instruction.index)
            native = None if facts is None or not hasattr(step, "native") else self._access(facts)
            if native is not None:
                self._check(block, CHECK, step, instruction, native)
            self._add_step(block, step, instruction)
        if end is not None and end.index in starts:
            self._guard(block, starts[end.index])

    def _add_end(self, block: p.Block) -> None:
        end = block.terminator
        if end is not None and block.end in (p.BARRIER, p.END):
            place = end.index + 1
            self._check(block, OTHER, None, end, Native(checked.arrive, (place if block.end == p.BARRIER else -place,)))
        super()._add_end(block)
        if end is not None and block.end == p.BARRIER:
            self._check(block, PASSED, None, end, Native(checked.passed, ()))

    def _guard(self, block: p.Block, stretch: Stretch) -> None:
        parts = stretch.registers
        table = np.array([checked.word_of(number) for part in parts for number in part], np.int32)
        words = self._shadow, table.ctypes.data, *(len(part) for part in parts), stretch.first_lane
        first = stretch.facts[0]
        function = checked.guard
        if first.high is not None and first.instruction.index in self._alone:
            high, spoiled = first.high
            places = [checked.word_of(number) for number in numbers(spoiled)]
            function, words = checked.guard_high, (*words, checked.word_of(high), len(places), *places)
        self._check(block, GUARD, None, first.instruction, Native(function, words, (table,)))

    def _access(self, facts: Facts) -> Native | None:
        """Return the check of a memory access; None if there is nothing to check."""
        access = facts.access
        if isinstance(access, GlobalAccess):
            aligned = self._aligned and access.size >= 4 and access.kind != ATOMIC
            return Native(checked.check_global, (*access.address, access.size, aligned, access.kind == STORE))
        if isinstance(access, ScalarAccess):
            return Native(checked.check_scalar, (access.base, access.soffset, access.offset, 4 * access.words))
        if isinstance(access, LdsAccess):
            size = access.size
            alignment = {8: 8, 12: 16, 16: 16}.get(size, size) if self._share_aligned else 1
            kind = _KINDS.get(access.kind, checked.ATOMIC)
            places = [word for part in access.parts for word in part]
            return Native(
                checked_share.check_share,
                (
                    access.areg,
                    size,
                    kind,
                    facts.instruction.index,
                    access.half == 2,
                    alignment,
                    len(access.parts),
                    *places,
                ),
            )
        return None


def shadow_offset(program: p.Program) -> int:
    """Return the offset of the definitions of registers in a wavefront's record."""
    pairs = (program.vgprs + 1) // 2 + 1
    return record.private_offset(pairs) + LANES * private_bytes(program)


def definitions(program: p.Program) -> int:
    """Return the number of words with the definitions of registers."""
    return checked.VECTORS + 2 * ((program.vgprs + 1) // 2 + 1)


class CheckedScheduler(TranslatedScheduler):
    """Runs one launch in mode ``check`` to its end; the launch's program has the mode's steps."""

    watch_: Check
    _interpreted = 0.0

    @classmethod
    def under(cls, watch: Check, launch: Launch, translation: Translation, limit: float | None) -> CheckedScheduler:
        scheduler = cls.of(launch, translation, limit)
        assert isinstance(scheduler, CheckedScheduler)  # sanity check
        scheduler.watch_ = watch
        return scheduler

    def run(self) -> None:
        watch, launch = self.watch_, self.launch
        watch.begin(False)
        watch.start(launch)
        self._regions = np.array(
            [(r.start, len(r.state), *(a.ctypes.data for a in (r.state, r.memory, r.pattern))) for r in watch.regions],
            np.int64,
        ).reshape(-1, 5)
        self._steps = {
            instruction.index: step
            for segment in launch.program.segments
            for step, instruction in zip(segment.steps, segment.instructions, strict=True)
        }
        self._config[checked.REGIONS :] = len(self._regions), self._regions.ctypes.data
        # Loads and stores must not pass the exact end of an allocation; the interpreter decides about other accesses.
        self.arena.context[record.ENDS] = launch.table.exact[1].ctypes.data
        self._interpreted = 0.0
        super().run()
        if isinstance(heat := launch.program.heat, CheckedHeat):
            heat.interpreted(launch, self._interpreted)
        watch.finish(launch)
        watch.over()

    def _arena(self, launch: Launch) -> Arena:
        waves, lds_bytes = launch.waves_per_group, launch.lds_bytes
        group = -(-lds_bytes // 8) * 8
        defined = group + 8 * checked.group_words(waves)
        records = defined + (group if waves == 1 else 0)
        end = records + (24 * lds_bytes if waves > 1 else 0)
        arena = Arena(launch, self.translation, (8 * definitions(launch.program), end - lds_bytes))
        self._config = np.array([waves, lds_bytes, group, defined, records, 0, 0], np.int64)
        arena.context[record.CHECKED] = self._config.ctypes.data
        checked_share.prepare()
        return arena

    def _grow(self) -> bool:
        before = len(self.arena.slots)
        grown = super()._grow()
        for slot in self.arena.slots[before:]:
            slot.share[...] = 0
        return grown

    # -- interpreting ------------------------------------------------------------------------------------------------

    def _waves(self, number: int) -> Sequence[CheckedWave]:
        arena, launch = self.arena, self.launch
        slot, group = arena.slots[number], int(arena.tables[2, number])
        if slot.group != group:
            slot.group = group
            first = shadow_offset(launch.program)
            own = GroupShare(launch.waves_per_group, self._config, slot.share)
            slot.waves = []
            for i, memory in enumerate(slot.records):
                wave = group * len(slot.records) + i
                chunk = SlotChunk(launch, group, slot.share[: max(1, launch.lds_bytes)], wave, memory[arena.private :])
                self.watch_.use_share(chunk, own)
                own_definitions = memory[first : first + 8 * definitions(launch.program)].view(np.int64)
                slot.waves.append(CheckedWave(chunk, memory, arena.pairs, own, own_definitions))
        return slot.waves

    def _interpret(self, number: int) -> None:
        start = time.thread_time()
        for wave in self._waves(number):
            if wave.state == record.STOPPED:
                wave.go_on(self._go_on_at(wave, number))
        self._interpreted += time.thread_time() - start

    def _go_on_at(self, wave: CheckedWave, number: int) -> int:
        """Execute what native code left to the interpreter; return the next operation."""
        position, kinds = wave.position, self.translation.kinds
        kind = kinds[position] if position < len(kinds) else OTHER
        wf = wave.wavefronts
        if kind == PASSED:
            self._release_barrier(wave, self._waves(number))
            return position + 1
        if kind == OTHER or (kind == STEP and self._facts_at(position).access is None):
            return self._execute(wf, position)  # its registers are defined
        wf.block = self.translation.places[position].block
        wf.refresh_exec()
        wave.begin_exact()
        alone = kind != GUARD
        position += kind != STEP
        while True:
            kind = kinds[position]
            place = self.translation.places[position]
            if kind == STEP:
                step = self._steps[place.instruction.index]
                facts = self._facts_at(position)
                self._exactly(wave, step, facts)
                position += 1
                if alone and not wave.has_undefined(facts.writes):
                    break
                alone = False
                continue
            if kind == CHECK:
                position += 1
                continue
            if kind == OTHER and place.instruction.index in self._steps:
                self._exactly(wave, self._steps[place.instruction.index], self._facts_at(position))
            break
        wave.end_exact()
        return position

    def _facts_at(self, position: int) -> Facts:
        instruction = self.translation.places[position].instruction
        facts = self.launch.program.facts.get(instruction.index)
        return Facts(instruction) if facts is None else facts

    def _exactly(self, wave: CheckedWave, step: Step, facts: Facts) -> None:
        uses_lds = facts.access is not None and not isinstance(facts.access, (GlobalAccess, ScalarAccess))
        wave.wavefronts.shadow.queues = Queues()  # no register is due: see ``facts.waits``
        if uses_lds:
            wave.share.begin_exact()
        try:
            step(wave.wavefronts)
        except UnimplementedInstruction:
            raise
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise failed(wave.wavefronts, step, error) from error
        if uses_lds:
            wave.share.end_exact()

    def _release_barrier(self, wave: CheckedWave, waves: Sequence[CheckedWave]) -> None:
        """Release a work-group from an s_barrier at which its wavefronts do not all wait."""
        code, own = self.launch.program.listing.instructions, wave.share
        mine = waves.index(wave)
        if own.passed[mine] == own.released:
            where = dict(zip((each.number for each in waves), own.at.tolist(), strict=True))
            at = {number: code[place - 1] for number, place in where.items() if place > 0}
            ended = {number: code[-1 - place] for number, place in where.items() if place < 0}
            first = next(each.wavefronts for each in waves if each.number in at)
            first.chunk.wavefronts = first
            self.watch_.check_barrier(first.chunk, at, ended)
            own.release_all()
        own.passed[mine] += 1
