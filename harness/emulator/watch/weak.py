"""Mode ``weak``: an adversary of the gfx942 memory model across wavefronts, work-groups, XCDs and ranks.

    driver = emulator.activate(mode="weak", choices=7)
    with emulator.concurrent_ranks(driver) as ranks: ...

Every global access is issued, and performed at any time before the wavefront's ``s_waitcnt vmcnt`` requires it:
accesses of one wavefront to different lines in any order, to the same line in program order. ``Hierarchy`` decides
where a store is then visible, and how old a line a load sees (LLVM AMDGPUUsage, "Memory Model gfx942"). The destination
register of a load changes when the load is performed, so code that forgets to wait reads the old value.

``covers`` selects the reading of a point that the manuals leave open: whether a leader wavefront's fence covers
siblings. ``work-group``  ``buffer_wbl2`` also writes back stores that other wavefronts of the work-group issued before
it and that are still in flight; ``buffer_inv`` acts at once for the whole compute unit
``wavefront``   it covers this wavefront's own earlier stores and what already landed; ``buffer_inv`` acts for siblings
when this wavefront has waited for it

Work-group number i of an agent runs on XCD i modulo ``xcds``, each on a compute unit of its own. LDS and scalar loads
are coherent. The stores of a kernel reach the system when it ends, and a kernel begins with clean caches.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import flight_state, issuing, local, queues, record, weak_state, weak_steps
from harness.emulator.native import memory as native
from harness.emulator.native.local import Numbers
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    STORE,
    CopyAccess,
    FlatAccess,
    FormatAccess,
    GlobalAccess,
    LdsAccess,
    ScalarAccess,
    ScratchAccess,
    TypedAccess,
    at_one,
)
from harness.emulator.operations.table import Native, Step, with_native
from harness.emulator.program.decode import Decoded, Program
from harness.emulator.watch import registers
from harness.emulator.watch.base import NativeWatch
from harness.emulator.watch.choices import EVICTS, MOVES, Choices, Seeded
from harness.emulator.watch.local import Local
from harness.emulator.watch.model import Image, Images, Model, at_address
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.single import SingleWavefront
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.launch import Launch

READINGS = ("work-group", "wavefront")
# The adversary performs an access or evicts at one of this many memory instructions; 0: it only delays.
_DRIFTS = (0, 16, 4, 2)
_SCOPES = ("wave", "workgroup", "agent", "system")
_KINDS = {LOAD: flight_state.LOAD, STORE: flight_state.STORE, ATOMIC: flight_state.ATOMIC}
_MOST_NAMED = 256
_LAUNCH, _FLIGHT, _GROUP, _BLOCKED = (
    field >> 3 for field in (record.LAUNCH, record.FLIGHT, record.GROUP, record.BLOCKED)
)


class Running:
    """A launch: ``number`` names it in events; ``address`` is that of what native functions need of it."""

    def __init__(self, launch: Launch, number: int, images: list[Image], begun: int, xcds: int) -> None:
        self.launch = launch
        self.number = number
        starts, ends, peers = launch.table.addresses
        self.executions = np.zeros(len(launch.program.accesses), np.int64)
        self._images = images
        self._pointers = np.array([image.address for image in images], np.int64)
        self._data = np.array(
            [
                starts, ends, peers, self._pointers.ctypes.data if images else 0, len(launch.table.allocations),
                self.executions.ctypes.data, launch.access_lanes.ctypes.data, launch.rank, begun, number,
                launch.waves_per_group, xcds,
            ]
        )  # fmt: skip
        self.address = self._data.ctypes.data


class Watched:
    """A wavefront in this mode: the address of its flight, or 0, and its launch. Its record has both too."""

    __slots__ = ("flight", "running")

    def __init__(self, flight: int, running: Running) -> None:
        self.flight = flight
        self.running = running


class Weak(NativeWatch):
    """See the module docstring. ``story()`` returns the memory events, oldest first."""

    name = "weak"
    copies_memory = True
    ending: list[int]

    def __init__(self, choices: Choices | None = None, covers: str = "work-group", xcds: int = 8) -> None:
        super().__init__(choices or Seeded(0))
        if covers not in READINGS:
            raise ValueError(f"covers must be one of {', '.join(READINGS)}, got {covers!r}")
        if xcds < 1:
            raise ValueError(f"xcds must be at least 1, got {xcds}")
        self.covers = covers
        self.xcds = xcds
        local.prepare()
        # Accesses by the address of their description.
        self._accesses: dict[int, GlobalAccess] = {}
        # LDS accesses and scalar loads in the same way, with the native functions whose addresses are not known yet.
        self._plain: dict[int, Step] = {}
        self._unresolved: list[tuple[np.ndarray, Native]] = []
        self._undecoded: list[np.ndarray] = []
        self._images = Images()
        self.restart(self.choices)

    def restart(self, choices: Choices | None) -> None:
        choices = choices or Seeded(0)
        super().restart(choices)
        self.model = Model(choices, self.covers == "work-group", self._deliver, self._fold, self._local)
        self._forget_operations()
        self.drift: int | None = None
        self.ending = []
        # Launches by number, for events: rank, wavefronts of a work-group, instructions.
        self._named: dict[int, tuple[int, int, list[Instruction]]] = {}
        self._most_named = _MOST_NAMED
        self._numbers = itertools.count(1)
        self._changes = -1

    def _forget_operations(self) -> None:
        self._running: dict[int, Running] = {}
        self._units: dict[tuple[int, int, int], int] = {}
        self._begun: dict[int, int] = {}
        # Elements of buffers in flight, by operation, with the wavefronts that load them.
        self._elements: dict[int, tuple[Wavefronts, TypedAccess, np.ndarray]] = {}
        # LDS accesses and scalar loads in flight that Python performs.
        self._locals: dict[int, Local] = {}
        self._tokens = itertools.count()

    @property
    def decisions(self) -> Model:
        return self.model

    @property
    def issued(self) -> int:
        """Number of global accesses and fences so far."""
        return self.model.issued

    def story(self, last: int = 40) -> list[str]:
        """Return the last events, oldest first: time, event, lines, and the instruction and wavefront that caused it.

        Loads that saw the newest value are left out.
        """
        lines: list[str] = []
        described = [(*self._described(*event), _lines_of(event[1])) for event in self.model.events()]
        for (event, origin), events in itertools.groupby(described, lambda entry: (entry[1], entry[3])):
            group = list(events)
            number = sum(each[4] for each in group)
            count = f"{number} lines from " if number > 1 else ""
            at = f" {count}{group[0][2]:#x}" if group[0][2] else ""
            lines.append(f"{group[0][0]:6d} {event}{at}: {origin}")
        return lines[-last:]

    def _described(self, now: int, event: int, address: int, origin: int, number: int) -> tuple[int, str, int, str]:
        """Return an event's time, what happened, line, and origin."""
        text = {
            weak_state.READS_OLD: "reads an old copy of",
            weak_state.LANDS: "lands at",
            weak_state.EVICTED: "cache evicts the store of",
            weak_state.INVALIDATED: "caches are invalidated by",
            weak_state.WRITTEN_BACK: f"{event >> 8} stores are written back by",
            weak_state.EXCHANGES: f"exchanges at {_SCOPES[event >> 8 & 3]} scope",
        }[event & 0xFF]
        rank, per_group, instructions = self._named[origin >> 32]
        group, inner = divmod(origin & 0xFFFFFFFF, per_group)
        instruction = instructions[number]
        where = f"rank {rank}, work-group {group}, wavefront {inner}"
        return now, text, address, f"{where}: {instruction.text!r} ({instruction.source})"

    # -- called by the scheduler and the decoder ---------------------------------------------------------------------

    def begin(self, closed: bool) -> None:
        self._images.forget()
        self.model.reset(outside=not closed)
        self._forget_operations()

    def start(self, launch: Launch) -> None:
        if (hostcall := launch.hostcall) is not None:

            def answered() -> None:
                self.model.call(issuing.ANSWERED, hostcall.address, hostcall.memory.nbytes)

            hostcall.answered = answered
        images = self._images.of(launch.table.arrays, self.model.epoch, launch.kernarg) if self.model.outside else []
        if self.drift is None:
            assert self.choices is not None  # sanity check
            self.drift = _DRIFTS[self.choices.pick(len(_DRIFTS), MOVES)]
            self.model.adversary(self.drift, bool(self.choices.pick(2, EVICTS)))
        if launch.rank in self.ending:
            self._end_kernels(are_last=False)
        # A kernel begins with clean caches: its compute units are new ones.
        self._begun[launch.rank] = self.model.tick()
        self._units = {key: unit for key, unit in self._units.items() if key[0] != launch.rank}
        number = next(self._numbers)
        self._named[number] = launch.rank, launch.waves_per_group, launch.program.listing.instructions
        if len(self._named) > self._most_named:
            named = {event[3] >> 32 for event in self.model.events()} | {run.number for run in self._running.values()}
            self._named = {n: facts for n, facts in self._named.items() if n in named or n == number}
            self._most_named = max(_MOST_NAMED, 2 * len(self._named))
        self._running[id(launch)] = Running(launch, number, images, self._begun[launch.rank], self.xcds)

    def finish(self, launch: Launch) -> None:
        running = self._running.pop(id(launch))
        launch.executions = [a + b for a, b in zip(launch.executions, running.executions.tolist(), strict=True)]
        self.model.call(issuing.DROP, running.address)
        self._locals = {token: one for token, one in self._locals.items() if one.wf.chunk.launch is not launch}
        self.ending.append(launch.rank)

    def over(self) -> None:
        self._end_kernels(are_last=True)

    def _end_kernels(self, are_last: bool) -> None:
        """Perform the release of the kernels that have ended. ``are_last``: no wavefront runs any more."""
        while self.ending:
            self.model.call(issuing.FLUSH, self.ending.pop(0), are_last)

    def address_of(self, launch: Launch) -> int:
        return self._running[id(launch)].address

    def end_kernel(self) -> None:
        """Perform the release at the end of a kernel: after the last wavefront, before the rank's next kernel."""
        self.model.call(issuing.FLUSH, self.ending.pop(0))

    def settled(self) -> bool:
        if self.ending:
            self.end_kernel()
            return False
        before, self._changes = self._changes, self.model.changes
        return before == self._changes and not self.model.may_move()

    def instrument(self, decoded: Decoded) -> Step | None:
        mnemonic = decoded.instruction.mnemonic
        if isinstance(decoded.access, TypedAccess | FormatAccess | FlatAccess):
            return self._issue_unusual(decoded.access)
        if isinstance(decoded.access, GlobalAccess):
            return self._issue_access(decoded.access)
        if isinstance(decoded.access, CopyAccess):
            return self._issue_copy(decoded.access)
        if isinstance(decoded.access, ScratchAccess):
            assert decoded.step is not None  # sanity check
            return self._issue_private(decoded.access, decoded.step)
        if mnemonic in ("buffer_wbl2", "buffer_inv"):
            return self._issue_fence(decoded.instruction)
        if mnemonic == "s_waitcnt":
            return self._wait(*waits_for(decoded.instruction))
        if decoded.step is not None and decoded.entry.klass in ("lds", "smem"):
            return self._issue_local(decoded, decoded.step)
        if mnemonic.startswith(("global_", "buffer_", "flat_")) and decoded.access is not None:
            raise UnimplementedInstruction(f"mode weak cannot track {mnemonic}; use another mode")
        return decoded.step

    # -- issuing -----------------------------------------------------------------------------------------------------

    def _issue_access(self, access: GlobalAccess) -> Step:
        description = self._describe(access)
        address, call = description.ctypes.data, self._issue

        def step(wf: SingleWavefront, description: np.ndarray = description) -> None:
            if call(wf, address) < 0:
                self._raise(wf, access)

        return with_native(step, weak_steps.access, address, keeps=(description,))

    def _issue(self, wf: SingleWavefront, access: int, prepared: int = 0) -> int:
        """Issue an access; return the address of the operation, or -1 if the access is bad."""
        watched = wf.watched or self._watch(wf)
        return self.model.call(
            issuing.ISSUE, watched.flight or self._fly(wf), access, watched.running.address, prepared
        )

    def _raise(self, wf: Wavefronts, access: GlobalAccess | CopyAccess) -> None:
        addresses, taking = access.addresses(wf)
        registers.locate(wf, access, addresses[0], np.flatnonzero(taking[0]))
        raise AssertionError(f"{access.instruction.text!r} has no bad address")  # sanity check

    def _issue_unusual(self, declared: GlobalAccess | FormatAccess) -> Step:
        """Issue an access whose data Python converts, or that may be one to LDS."""
        # By what a descriptor decides.
        described: dict[tuple[object, ...], np.ndarray] = {}

        def step(wf: SingleWavefront) -> None:
            access = at_one(declared, wf)
            assert isinstance(access, GlobalAccess)  # sanity check
            _, taking = access.addresses(wf)
            key: tuple[object, ...] = ()
            if isinstance(access, TypedAccess):
                key = access.size, access.data_format, access.number_format, access.select
            if key not in described:
                described[key] = self._describe(access)
            lanes, data = np.flatnonzero(taking[0]), None
            if isinstance(access, TypedAccess):
                outside = wf.exec_mask[0] & ~taking[0]
                if outside.any() and access.kind != STORE:
                    registers.clear(wf, access, np.flatnonzero(outside))
                data = np.ascontiguousarray(registers.gather(wf, access, lanes)[0])
            operation = self._issue(wf, described[key].ctypes.data, 0 if data is None else data.ctypes.data)
            if operation < 0:
                self._raise(wf, access)
            if isinstance(access, TypedAccess) and access.kind == LOAD and len(lanes):
                self._elements[operation] = wf, access, lanes

        return step

    def _deliver(self, operation: int, data: int) -> int:
        """Write the elements that a load has returned, at address ``data``, to registers."""
        wf, access, lanes = self._elements.pop(operation)
        registers.deliver(wf, access, lanes, at_address(data, len(lanes) * access.size).reshape(-1, access.size).copy())
        return 0

    def _fold(self, address: int, value: int) -> int:
        """Return the new value of an atomic; the old one is in the model's scratch memory."""
        access = self._accesses[address]
        old = at_address(self.model.scratch, 8)[: access.size].copy()
        new = registers.fold(access, old, np.array([value], np.int64).view(np.uint8)[: access.size].copy())
        return int.from_bytes(new.tobytes(), "little", signed=access.size == 8)

    def _issue_copy(self, access: CopyAccess) -> Step:
        """Issue a load to the data share, which writes there when it is performed."""
        description = self._describe(access)

        def step(wf: SingleWavefront) -> None:
            _, taking = access.addresses(wf)
            chunk, at = wf.chunk, access.lds_addresses(wf)[0]
            beyond = np.flatnonzero(wf.exec_mask[0] & ((at < 0) | (at + access.slot > chunk.lds_bytes)))
            if len(beyond):
                chunk.lds_fault_at(wf, access.instruction, int(beyond[0]), int(at[beyond[0]]), access.slot)
            at = at + int(chunk.group_of(wf.wave)[0]) * chunk.lds_bytes
            outside = np.flatnonzero(wf.exec_mask[0] & ~taking[0])
            registers.deliver_to_share(wf, access, at[outside], np.zeros((len(outside), access.size), np.uint8))
            places = at + chunk.lds.ctypes.data
            if self._issue(wf, description.ctypes.data, places.ctypes.data) < 0:
                self._raise(wf, access)

        return step

    def _issue_private(self, access: ScratchAccess, plain: Step) -> Step:
        """Issue an access to a lane's private segment: it is performed at once, and counted as in flight."""
        description = self._describe(access)
        kind, index = _KINDS[access.kind], access.instruction.index

        def step(wf: SingleWavefront) -> None:
            flight = self._flight(wf)
            self.model.call(issuing.PRIVATE, flight, description.ctypes.data)
            plain(wf)
            self.model.call(issuing.COUNTED, flight, kind, index)

        return step

    def _describe(self, access: GlobalAccess | CopyAccess | ScratchAccess) -> np.ndarray:
        """Return the fields of an access as native functions read them."""
        written = sorted(registers.written(access))
        conversion = issuing.PLAIN
        out = np.zeros(issuing.ACCESS_FIELDS, np.int64)
        first = written[0] if written else -1_000_000  # overlaps no other register
        if isinstance(access, ScratchAccess):
            out[issuing.FIRST_WRITTEN >> 3], out[issuing.WRITTEN >> 3] = first, len(written)
            return out
        register, target, operation, half = 0, -1, -1, 0
        if isinstance(access, CopyAccess):
            conversion = issuing.TO_SHARE
        else:
            register, target, operation, half = access.data, access.target, access.operation, access.half
            if isinstance(access, TypedAccess):
                conversion = issuing.TYPED
            elif operation in (native.PK_ADD_F16, native.PK_ADD_BF16):
                conversion = issuing.NUMPY_FOLD
        out[:] = (
            _KINDS.get(access.kind, flight_state.LOAD), access.size, _SCOPES.index(access.scope), access.site,
            access.instruction.index, *access.address, register, target, operation, access.signed, half, first,
            len(written), conversion,
        )  # fmt: skip
        if isinstance(access, GlobalAccess):
            self._accesses[out.ctypes.data] = access
        return out

    def _issue_fence(self, instruction: Instruction) -> Step | None:
        modifiers = instruction.modifiers
        scope = _SCOPES.index(("system" if "sc0" in modifiers else "agent") if "sc1" in modifiers else "workgroup")
        kind = flight_state.WRITE_BACK if instruction.mnemonic == "buffer_wbl2" else flight_state.INVALIDATE
        index = instruction.index

        def step(wf: SingleWavefront) -> None:
            self.model.call(issuing.FENCE, self._flight(wf), kind, scope, index)

        return with_native(step, weak_steps.fence, kind, scope, index)

    def _issue_local(self, decoded: Decoded, plain: Step) -> Step:
        access = decoded.access
        vectors: tuple[int, ...] = ()
        scalars: tuple[int, ...] = ()
        if isinstance(access, ScalarAccess):
            if access.kind != LOAD:
                # LLVM's memory model has no scalar writes: they go to another cache, which s_dcache_wb writes back.
                raise UnimplementedInstruction(
                    f"mode weak cannot track {access.instruction.mnemonic}; use another mode"
                )
            scalars = tuple(range(access.target, access.target + access.words))
        elif isinstance(access, LdsAccess):
            words = max(1, access.size // 4)
            vectors = tuple(first + i for first in access.loaded for i in range(words))
        else:  # a clock, or a lane permutation through the LDS unit
            target = operands.parse(decoded.instruction.operands[0], decoded.accum_offset)
            written = tuple(range(target.register, target.register + target.count))
            vectors, scalars = (written, ()) if target.space == "v" else ((), written)
        pairs, written_vectors, written_scalars = (Numbers(n) for n in (_pairs(decoded), vectors, scalars))

        def step(wf: SingleWavefront) -> None:
            if wf.watched is None:
                self._watch(wf)
            token = next(self._tokens)
            self._locals[token] = Local(wf, wf.copy(pairs), plain, written_vectors, written_scalars)
            self.model.call(issuing.APPEND, wf.record, token)

        function: Native | None = getattr(plain, "native", None)
        if function is None:
            return step
        described = np.zeros(queues.DESCRIPTION_FIELDS, np.int64)
        numbers = (pairs, written_vectors, written_scalars)
        described[queues.PAIRS >> 3 : queues.RECORD_BYTES >> 3] = [n for x in numbers for n in (x.address, x.count)]
        described[queues.PARAMETERS >> 3 :][: len(function.parameters)] = function.parameters
        self._plain[described.ctypes.data] = plain
        self._unresolved.append((described, function))
        self._undecoded.append(described)
        keeps = (described, *numbers, *function.keeps)
        return with_native(step, weak_steps.local, described.ctypes.data, keeps=keeps)

    def decoded(self, program: Program) -> None:
        for described in self._undecoded:
            described[queues.RECORD_BYTES >> 3] = record.private_offset((program.vgprs + 1) // 2 + 1)
        self._undecoded.clear()

    def translated(self) -> None:
        for described, function in self._unresolved:
            described[queues.FUNCTION >> 3] = function.function.address
        self._unresolved.clear()

    def _local(self, token: int, description: int) -> int:
        """Perform an LDS access or a scalar load that has no native form or faults, then on the record at ``token``."""
        if not description:
            self._locals.pop(token).perform()
            return 0
        header = at_address(token, record.VECTORS).view(np.int64)
        number, size = (
            int(header[record.NUMBER >> 3]),
            int(at_address(description, queues.PARAMETERS).view(np.int64)[-1]),
        )
        launch = next(each.launch for each in self._running.values() if each.address == header[_LAUNCH])
        assert self.chunk_of is not None  # sanity check
        chunk = self.chunk_of(launch, number)
        self._plain[description](SingleWavefront.at(at_address(token, size), chunk, number))
        return 0

    def _watch(self, wf: SingleWavefront) -> Watched:
        running = self._running[id(wf.chunk.launch)]
        watched: Watched = Watched(int(wf.header[_FLIGHT]), running)
        wf.header[_LAUNCH] = running.address
        wf.watched = watched
        return watched

    def _flight(self, wf: SingleWavefront) -> int:
        return (wf.watched or self._watch(wf)).flight or self._fly(wf)

    def _fly(self, wf: SingleWavefront) -> int:
        """Create the flight of a wavefront, at its first global access, fence or wait."""
        watched, launch = wf.watched, wf.chunk.launch
        wave = int(wf.wave[0])
        group = wave // launch.waves_per_group
        key = launch.rank, group % self.xcds, group // self.xcds
        structure = int(wf.header[_GROUP])
        # Of a work-group that native code has started, that code may have made the compute unit.
        made = at_address(structure + weak_steps.UNIT, 8).view(np.int64) if structure else None
        unit = self._units.get(key) if made is None else int(made[0]) or None
        if unit is None:
            unit = self.model.call(issuing.NEW_UNIT, launch.rank, key[1], self._begun[launch.rank])
            if made is None:
                self._units[key] = unit
            else:
                made[0] = unit
        name = watched.running.number << 32 | wave
        wf.header[_FLIGHT] = watched.flight = self.model.call(issuing.NEW_FLIGHT, unit, wf.record, name)
        return int(watched.flight)

    # -- performing --------------------------------------------------------------------------------------------------

    def _wait(self, global_: int, local: int) -> Step:
        """s_waitcnt: perform the oldest accesses one by one, in an order that the adversary chooses."""

        def step(wf: SingleWavefront) -> None:
            watched = wf.watched or self._watch(wf)
            self.model.call(issuing.SETTLE, wf.record, local)
            wf.header[_BLOCKED] = self.model.call(issuing.WAIT, watched.flight or self._fly(wf), global_) > 1

        return with_native(step, weak_steps.wait, global_, local)

    def lingers(self, wf: Wavefronts) -> bool:
        """Return True until the wavefront's accesses have been performed."""
        self.model.call(issuing.SETTLE, wf.record, 0)  # type: ignore[attr-defined]
        return self.model.call(issuing.LINGERS, self._flight(wf)) > 0  # type: ignore[arg-type]

    def blocked(self, wf: Wavefronts) -> bool:
        assert isinstance(wf, SingleWavefront)  # sanity check
        if self.drift and self.model.call(issuing.MOVE, bool(self.ending)) < 0:
            self.end_kernel()
        blocked, wf.header[_BLOCKED] = bool(wf.header[_BLOCKED]), 0
        return blocked


def _lines_of(event: int) -> int:
    """Return how many lines an event of the model concerns."""
    return 1 + (event >> 8) if event & 0xFF == weak_state.LANDS else 1


def _pairs(decoded: Decoded) -> tuple[int, ...]:
    """Return the pairs of vector registers among an instruction's operands."""
    pairs: set[int] = set()
    for text in decoded.instruction.operands:
        operand = operands.parse(text, decoded.accum_offset)
        if operand.space == "v":
            pairs.update(register >> 1 for register in range(operand.register, operand.register + operand.count))
    return tuple(sorted(pairs))


def waits_for(instruction: Instruction) -> tuple[int, int]:
    """Return how many vector memory accesses, and how many LDS accesses and scalar loads, may stay in flight.

    The operand of s_waitcnt is ``vmcnt(n) lgkmcnt(n)`` or one of them, or a number that encodes both: bits 3..0 with
    15..14, and 11..8 (CDNA3 ISA, SOPP).
    """
    text = " ".join(instruction.operands)
    if "cnt(" not in text:
        word = int(text, 0)
        return word & 0xF | word >> 14 << 4 & 0x30, word >> 8 & 0xF
    counts = {name: int(n) for name, n in re.findall(r"(\w+cnt)\((\d+)\)", text)}
    return counts.get("vmcnt", 63), counts.get("lgkmcnt", 63)
