"""Contracts of compiled kernels: what is read from ``contracts/*.toml``, and what a kernel breaks of it.

A contract is about a call, whatever kernels it launches. Its table has two parts: what memory order needs, for any
library, and under ``own`` what some libraries promise, such as widths and registers. docs/isa.md has the
keys.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from conformance.isa.targets import BACKS_OFF, SPILLS, needed, order_faults
from harness import isa
from harness.errors import HarnessError
from harness.evidence.environment import folder_of
from harness.isa import protocol
from harness.isa.protocol import Overtaken, Program, Spin, Step

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "contracts"
WAIT_STATES = ("gfx942", "gfx950")
"""Targets whose rules of wait states are known: ``harness.emulator.watch.check.hazards``."""


@dataclass(frozen=True)
class Own:
    """The promises of a library besides, as the bundled one makes them.

    ``waits``: the least number of spin loops in the kernels of a call. ``relaxed``: how many flags may be written
    without a release, as those that are only set back. ``earlier``: the other flags announce what earlier kernels of
    the stream have stored too, such as the inputs of a collective. ``later``: later kernels of the stream read what
    the flags announced that this one waited for. ``load`` and ``store``: bytes of a lane's remote
    accesses, which have no cache bits; 0: no such access is looked at. ``words``: bytes of remote stores that carry
    data and flag at the contract's scope; 0: there are none. ``retries``: an atomic may be a loop around a
    compare-and-swap. ``registers`` and ``lds`` (bytes): their limits, by target. ``spills``: how many registers may be
    spilt, or bytes of stack used, by target; of a target that is not named, none.
    """

    waits: int = 0
    relaxed: int = 0
    earlier: bool = False
    later: bool = False
    load: int = 0
    store: int = 0
    words: int = 0
    retries: bool = False
    registers: Mapping[str, int] = field(default_factory=dict)
    spills: Mapping[str, int] = field(default_factory=dict)
    lds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Contract:
    """The requirements on the kernels of one call.

    ``scope``: at which polls read, flags are written, and fences around them act. ``flags``: the operations that may
    write a flag. ``acquires``: false if the polled words themselves carry the data. ``order``: sem and scope of the
    call's only atomic.
    """

    name: str
    scope: str = "sys"
    flags: tuple[str, ...] = ()
    acquires: bool = True
    order: tuple[str, str] | None = None
    own: Own = Own()


@functools.cache
def contracts(folder: Path = FOLDER) -> dict[str, Contract]:
    """Return the contracts of all files, by the name of the call. HarnessError for an unknown key, or a call that has
    two."""
    by_call: dict[str, Contract] = {}
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        defaults = table.pop("defaults", {})
        for name, plain in table.items():
            if name in by_call:
                raise HarnessError(f"{path}: {name!r} has a contract in another file")
            own = _made(Own, {**defaults.get("own", {}), **plain.pop("own", {})}, f"{path}: {name}: own")
            merged = {**{key: value for key, value in defaults.items() if key != "own"}, **plain}
            by_call[name] = _made(Contract, {**merged, "name": name, "own": own}, f"{path}: {name}")
    return by_call


def _made(kind: type, values: dict[str, Any], where: str) -> Any:
    known = {one.name for one in fields(kind)}
    if unknown := sorted(set(values) - known):
        raise HarnessError(f"{where}: expected keys among {sorted(known)}, got {unknown}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


@dataclass(frozen=True)
class Code:
    """A compiled kernel. ``shared``: the bytes of LDS that Triton allocates at a launch; None if that is not known."""

    kernel: str
    fingerprint: isa.Fingerprint
    program: Program
    listing: str
    shared: int | None = None

    @property
    def lds(self) -> int | None:
        """Bytes of shared memory."""
        return self.fingerprint.lds if self.shared is None else self.shared

    @property
    def label(self) -> str:
        return f"{self.kernel} ({self.fingerprint.arch})"


def codes_of(launch: Any) -> list[Code]:
    """Return the code of a launch record that a contract judges: what Triton compiled, with the registers of the
    machine code."""
    program = protocol.read(launch.listing, isa.roots_of(launch))
    return [Code(launch.kernel, isa.of_launch(launch), program, launch.listing)]


def promises(package: str) -> bool:
    """Return whether a library keeps the parts ``own`` of contracts: its module ``promises`` sets COMPILED_CODE.

    The module is read and not imported, since a judge never imports the library.
    """
    folder = folder_of(package) if package.isidentifier() else None
    file = folder / "promises.py" if folder is not None else None
    if file is None or not file.is_file():
        return False
    assigned = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
    return any(
        isinstance(each.value, ast.Constant) and each.value.value is True
        for each in assigned
        if any(isinstance(target, ast.Name) and target.id == "COMPILED_CODE" for target in each.targets)
    )


def broken(contract: Contract, codes: list[Code], is_own: bool) -> list[str]:
    """Return what the kernels of one call break of its contract, each with kernel, source line and what is missing.

    ``is_own``: the library promises to keep all of it, see ``promises``.
    """
    lines = [line for code in codes for line in (*flaws(contract, code, is_own), *_wait_states(code))]
    if is_own:
        lines += _promises(contract, codes)
    return list(dict.fromkeys(lines))


def flaws(contract: Contract, code: Code, is_own: bool) -> Iterator[str]:
    """Yield what a kernel breaks of the part of its contract that holds for every build of it: memory order, and waits
    for loads."""
    yield from _order(contract, code, is_own)
    yield from (f"{code.label}: {lack}" for lack in protocol.unwaited(code.program))


# -- memory order ------------------------------------------------------------------------------------------------------


def _order(contract: Contract, code: Code, is_own: bool) -> Iterator[str]:
    if contract.order is not None:
        yield from _of_atomic(code, *contract.order)
    spins = protocol.spins(code.program)
    polls = [poll for spin in spins for poll in spin.every]
    yield from _of_polls(contract, code, spins, is_own)
    if contract.acquires:
        later = is_own and contract.own.later
        for lack in protocol.unacquired(code.program, polls, contract.scope, later_kernels=later):
            behind = "the loads of later kernels" if lack.access is protocol.END else f"the load {lack.access}"
            yield _missing(code, contract, lack, f"the poll {lack.flag} and {behind}")
    flags = flags_of(contract, code.program)
    if flags and is_own:
        word = min(flag.width for flag in flags)
        for poll in polls:
            if poll.width < word:
                yield f"{code.label}: the poll {poll} reads {poll.width} bytes of a flag of {word}"
    if flags:
        yield from _of_flags(contract, code, flags, polls, is_own)
    if is_own:
        for step in flags_of(contract, code.program, at_scope=False):
            if step.op and step not in flags:
                missing = needed(code.fingerprint.language, step, contract.scope)
                yield f"{code.label}: the flag {step} is not written at scope {contract.scope}: missing {missing}"
    if is_own and contract.order is None:
        yield from _of_remote_atomics(contract, code)
    if is_own and contract.own.words:
        yield from _of_words(contract, code)


def flags_of(contract: Contract, program: Program, at_scope: bool = True) -> list[Step]:
    """Return the steps that write a flag: words of up to ``isa.FLAG_BYTES`` bytes, without polls and retries;
    ``at_scope``: only those at the contract's scope."""
    besides = {poll for spin in protocol.spins(program) for poll in spin.every} | set(protocol.retries(program))
    return [
        step for step in program.steps()
        if (step.op or step.access) in contract.flags and step.width <= isa.FLAG_BYTES
        and (step.scope == contract.scope or not at_scope) and step not in besides
    ]  # fmt: skip


def _of_remote_atomics(contract: Contract, code: Code) -> Iterator[str]:
    """Atomics of two devices on one element do not exclude each other at a narrower scope, whatever their order."""
    for step in code.program.steps():
        if (step.access, step.where) == ("atomic", "remote") and not protocol.covers(step.scope, contract.scope):
            missing = needed(code.fingerprint.language, step, contract.scope)
            yield f"{code.label}: the remote atomic {step} is not at scope {contract.scope}: missing {missing}"


def _of_words(contract: Contract, code: Code) -> Iterator[str]:
    """A word of data and flag that stays in a cache is never seen by the member that polls for it."""
    for step in _remote_stores(code):
        if not protocol.covers(step.scope, contract.scope):
            missing = needed(code.fingerprint.language, step, contract.scope)
            yield f"{code.label}: the remote store {step} is not at scope {contract.scope}: missing {missing}"


def _remote_stores(code: Code) -> list[Step]:
    return [step for step in code.program.steps() if (step.access, step.where) == ("store", "remote")]


def _of_atomic(code: Code, sem: str, scope: str) -> Iterator[str]:
    for part, seen, wanted in order_faults(code.fingerprint, code.listing, sem, scope):
        yield f"{code.label}: {part}: wanted {wanted} for {sem} at scope {scope}, got {seen}"


def _of_polls(contract: Contract, code: Code, spins: list[Spin], is_own: bool) -> Iterator[str]:
    language = code.fingerprint.language
    narrow = []
    for spin in spins:
        if not spin.polls:
            yield f"{code.label}: the loop at {spin.place} waits, but reads nothing: it never ends"
        for poll in spin.unlike if is_own else ():
            # Of a wait for another word than the loop's, such as another program's, no value shows more than luck.
            yield f"{code.label}: the poll {poll}, before a loop, reads otherwise than the loop: {spin.polls[0].text!r}"
        for poll in spin.every:
            if not protocol.covers(poll.scope, contract.scope):
                line = (
                    f"{code.label}: the poll {poll} does not read at scope {contract.scope}: missing"
                    f" {needed(language, poll, contract.scope)}"
                )
                if is_own or not protocol.covers(poll.scope, "gpu"):
                    yield line
                else:
                    narrow.append(line)
    # Another library may also wait for programs of the same GPU; but not only for them.
    if len(narrow) == sum(len(spin.every) for spin in spins):
        yield from narrow


def _of_flags(
    contract: Contract, code: Code, flags: list[Step], polls: list[Step], is_own: bool
) -> Iterator[str]:  # fmt: skip
    lacks = protocol.unreleased(
        code.program, flags, contract.scope, besides=polls, earlier_kernels=is_own and contract.own.earlier
    )
    if not is_own:
        # Another library may set flags back, or count. But one of its flags has to announce something.
        lacks = [lack for lack in lacks if lack.lack == "write-back"]
        if {lack.flag for lack in lacks} != set(flags):
            return
    elif len({lack.flag for lack in lacks}) <= contract.own.relaxed:
        return
    shown: dict[tuple[str, str], Overtaken] = {}
    for lack in lacks:
        shown.setdefault((lack.flag.place, lack.lack), lack)
    for lack in shown.values():
        stored = f"the {lack.access.access} {lack.access}"
        before = "the stores of earlier kernels" if lack.access is protocol.START else stored
        yield _missing(code, contract, lack, f"{before} and the flag {lack.flag}")


def _missing(code: Code, contract: Contract, lack: Overtaken, between: str) -> str:
    missing = protocol.MISSING[code.fingerprint.language][lack.lack].get(contract.scope, lack.lack)
    return f"{code.label}: missing {missing} between {between}"


# -- hazards -----------------------------------------------------------------------------------------------------------


def _wait_states(code: Code) -> Iterator[str]:
    """Too few wait states, which only inline assembly can have; AMD GPUs then read an old register, without a fault."""
    if code.fingerprint.arch in WAIT_STATES:
        # Imported here: on GPUs of other kinds nothing of the emulator is needed.
        from harness.emulator.faults import MissingWaitStates
        from harness.emulator.program.decode import decode
        from harness.emulator.watch.check import Check

        try:
            decode(code.listing, watch=Check())
        except MissingWaitStates as fault:
            yield f"{code.label}: {fault}"


# -- what a library promises besides -----------------------------------------------------------------------------------


def _promises(contract: Contract, codes: list[Code]) -> Iterator[str]:
    own = contract.own
    waits = 0
    for code in codes:
        print_ = code.fingerprint
        spilt = sum(filter(None, (getattr(print_, name) for name in SPILLS[print_.language])))
        yield from _at_most("spilt registers or bytes of stack", spilt, {print_.arch: 0, **own.spills}, code)
        yield from _at_most("registers", print_.vgprs or print_.registers, own.registers, code)
        yield from _at_most("bytes of LDS", code.lds, own.lds, code)
        spins = protocol.spins(code.program)
        waits += len(spins)
        for spin in spins:
            if not spin.sleeps and (asleep := BACKS_OFF[print_.language]):
                yield f"{code.label}: the spin loop at {spin.place} does not back off: missing {asleep}"
        if not own.retries:
            for retry in protocol.retries(code.program):
                yield f"{code.label}: a loop around the compare-and-swap {retry}, wanted one atomic instruction"
    if waits < own.waits:
        yield f"{', '.join(code.label for code in codes)}: {waits} spin loops, wanted {own.waits}"
    for kind, width in (("load", own.load), ("store", own.store)):
        if width:
            yield from _widths(codes, kind, width)
    if own.words:
        yield from _words(contract, codes)


def _at_most(unit: str, seen: int | None, limits: Mapping[str, int], code: Code) -> Iterator[str]:
    limit = limits.get(code.fingerprint.arch)
    if limit is not None and seen is not None and seen > limit:
        yield f"{code.label}: {seen} {unit}, at most {limit} wanted"


def _widths(codes: list[Code], kind: str, width: int) -> Iterator[str]:
    payload = [
        (code, access)
        for code in codes
        for access in code.fingerprint.accesses
        if (access.kind, access.where) == (kind, "remote") and access.space != "scalar" and not access.is_flag
    ]
    for code, access in payload:
        label = f"{code.label}: the remote {kind} {access.mnemonic} at {access.source}"
        if access.width != width:
            yield f"{label} is {access.width} bytes wide, wanted {width}"
        if access.bits:
            yield f"{label} has the cache bits {' '.join(access.bits)}, wanted none"
    if not payload:
        yield f"{', '.join(code.label for code in codes)}: no remote {kind}, wanted {width} bytes wide"


def _words(contract: Contract, codes: list[Code]) -> Iterator[str]:
    stores = [(code, step) for code in codes for step in _remote_stores(code)]
    for code, step in stores:
        if step.width != contract.own.words:
            yield f"{code.label}: the remote store {step} is {step.width} bytes wide, wanted {contract.own.words}"
    if not stores:
        yield f"{', '.join(code.label for code in codes)}: no remote store, wanted {contract.own.words} bytes wide"
