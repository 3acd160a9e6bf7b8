"""Data flow of PTX: the addresses of every access to global memory, followed through the registers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from harness.isa.flow import words
from harness.isa.flow.loads import loaded
from harness.isa.flow.registers import Registers
from harness.isa.flow.shared import Shared
from harness.isa.flow.solve import Key, follow, solve
from harness.isa.flow.words import MANY, PLAIN, Token, Word
from harness.isa.ptx_code import Function, Instruction, Label, Table, access_form, code

_MOST_CALLS = 16
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")
_ADDRESS = re.compile(r"\[\s*([^\]+]+?)\s*(?:\+\s*(-?\w+)\s*)?(?:,[^\]]*)?\]")
_WIDTH = re.compile(r"[busf](\d+)$")
_DEPOT = re.compile(r"__local_depot(\d+)")
_DEPOT_BYTES = 1 << 32  # more than any function's local memory
_UNKNOWN_CELL = ("local", 0, None)


def addresses(text: str) -> dict[int, set[Word]]:
    """Return the words of the address of each access to global memory, by the instruction's number in the PTX."""
    flow = _Flow(text)
    follow(flow.shared, flow.solve)
    return flow.addresses


class _Flow:
    def __init__(self, text: str) -> None:
        self.code: list[Instruction] = []
        self.functions: dict[str, int] = {}
        self.parameters: dict[str, tuple[str, int, bool]] = {}
        self.entries: list[int] = []
        # A label of an inline assembly is known inside its braces only, so a name may stand for several places.
        self.labels: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.shared = Shared()
        self.addresses: dict[int, set[Word]] = {}
        self.results: dict[int, tuple[str, ...]] = {}
        leaders = {0}
        prefixes: list[str] = []  # by instruction: each function has registers of its own
        for item in code(text):
            if isinstance(item, Function):
                self.functions[item.name] = len(self.code)
                leaders.add(len(self.code))
                if item.is_entry:
                    self.entries.append(len(self.code))
                    self.parameters |= {
                        name: (name, number, is_pointer) for number, (name, is_pointer) in enumerate(item.parameters)
                    }
            elif isinstance(item, Label):
                self.labels.setdefault(item.name, []).append((len(self.code), item.scope))
                leaders.add(len(self.code))
            elif isinstance(item, Table):
                self.tables[item.name] = item.labels
            else:
                self.code.append(item)
                prefixes.append(f"%{len(self.functions)}")
        self.operands = [
            tuple(_OPERAND.findall(i.operands.replace("%", prefix)))
            for i, prefix in zip(self.code, prefixes, strict=True)
        ]
        leaders |= {number + 1 for number, i in enumerate(self.code) if _ends(i.opcode)}
        self.leaders = sorted(at for at in leaders if at < len(self.code))

    def solve(self) -> None:
        """Follow each kernel from its beginning."""
        self.addresses.clear()
        for start in self.entries:
            solve(start, Registers(self.shared), self.run)

    def run(self, key: Key, state: Registers) -> Iterator[tuple[Key, Registers]]:
        at, calls = key
        end = bisect_right(self.leaders, at)
        stop = self.leaders[end] if end < len(self.leaders) else len(self.code)
        for number in range(at, stop):
            i = self.code[number]
            if _ends(i.opcode):
                yield from self._jump(number, i, calls, state)
                return
            self._step(number, i, state)
        if stop < len(self.code):
            yield (stop, calls), state

    def _jump(
        self, number: int, i: Instruction, calls: tuple[int, ...], state: Registers
    ) -> Iterator[tuple[Key, Registers]]:
        base, operands, after = i.opcode.split(".")[0], self.operands[number], number + 1
        if base == "bra":
            yield (self._target(operands[0], i.scope), calls), state
        elif base == "brx":
            for label in self.tables[operands[1]]:
                yield (self._target(label, i.scope), calls), state
        elif base == "call":
            called = [name for name in operands if name in self.functions]
            if called and len(calls) < _MOST_CALLS:
                at = operands.index(called[0])
                for position, name in enumerate(_list(operands[at + 1]) if at + 1 < len(operands) else ()):
                    _copy_cells(state, name, f"{called[0]}_param_{position}")
                self.results[after] = _list(operands[0]) if at else ()
                yield (self.functions[called[0]], (*calls, after)), state
                return
            # Of the machine's own library (an assertion, a print).
        elif base == "ret" and calls:
            for name in self.results.get(calls[-1], ()):
                _copy_cells(state, "func_retval0", name)
            yield (calls[-1], calls[:-1]), state
        if (i.guard or base == "call") and after < len(self.code):
            yield (after, calls), state

    def _target(self, label: str, scope: tuple[int, ...]) -> int:
        """Return the place of a label that is known in ``scope``, the innermost one."""
        return max(self.labels[label], key=lambda place: (place[1] == scope[: len(place[1])], len(place[1])))[0]

    def _step(self, number: int, i: Instruction, state: Registers) -> None:
        operands = self.operands[number]
        base, *qualifiers = i.opcode.split(".")
        before = {}
        if i.guard and operands:
            before = {name: state.words[name] for name in _list(operands[0]) if name in state.words}
        if (form := access_form(i.opcode, i.operands)) is not None:
            self._access(number, i, form.kind, operands, state)
        elif base in ("ld", "st"):
            self._elsewhere(base, qualifiers, operands, state)
        elif base in ("atom", "red", "ldmatrix", "stmatrix"):
            _shared(base, operands, state)
        elif operands:
            _arithmetic(base, qualifiers, operands, state)
        for name, word in before.items():
            state[name] = words.join(word, state[name])

    def _access(self, number: int, i: Instruction, kind: str, operands: tuple[str, ...], state: Registers) -> None:
        place = next((part for part in operands if part.startswith("[")), None)
        if i.opcode.startswith("cp."):
            place = [part for part in operands if part.startswith("[")][1]
        if place is None:
            return
        address = _address(place, state)
        self.addresses.setdefault(number, set()).add(address)
        if i.opcode.startswith("cp."):
            state.store_shared(*loaded(address, 1))
            return
        if kind == "store" or i.opcode.startswith(("red", "multimem.red")):
            return
        is_pointer = re.search(r"\.[busf]?(64|128)\b", i.opcode) is not None
        for name in _list(operands[0]):
            state[name] = loaded(address, 1)[0] if is_pointer else PLAIN

    def _elsewhere(self, base: str, qualifiers: list[str], operands: tuple[str, ...], state: Registers) -> None:
        """Follow parameters, which have names, local memory by address, and shared memory as a whole."""
        is_load = base == "ld"
        place, data = (operands[1], operands[0]) if is_load else operands[:2]
        match = _ADDRESS.match(place)
        name, offset = (match[1], int(match[2] or "0", 0)) if match else (place, 0)
        if any(q.startswith("param") for q in qualifiers):
            cell: Any = name if not offset else f"{name}+{offset}"
            if is_load and name in self.parameters:
                _, number, is_pointer = self.parameters[name]
                word = words.of_token(Token(f"{'p' if is_pointer else 'i'}{number}"))
                for register in _list(data):
                    state[register] = word if "b64" in qualifiers or "u64" in qualifiers else PLAIN
                return
        elif any(q.startswith("local") for q in qualifiers):
            at = _read(state, name).const
            cell = ("local", 0, None if at is None else at + offset)
        else:
            size = _size(qualifiers)
            if not is_load:
                state.store_shared(*(_read(state, register) for register in _list(data)))
            for register in _list(data) if is_load else ():
                is_number = size < 4 or any(q.startswith("const") for q in qualifiers)
                state[register] = PLAIN if is_number else state.load_shared()
            return
        if cell == _UNKNOWN_CELL:
            _somewhere(is_load, _list(data), state)
            return
        size = _size(qualifiers)
        for index, register in enumerate(_list(data)):
            one = (*cell[:2], cell[2] + size * index) if isinstance(cell, tuple) else cell
            if not is_load:
                state.words[one] = _read(state, register)
            elif isinstance(one, tuple) and _UNKNOWN_CELL in state.words:
                state[register] = words.join(state[one], state[_UNKNOWN_CELL])
            else:
                state[register] = state[one]


def _somewhere(is_load: bool, registers: tuple[str, ...], state: Registers) -> None:
    """Follow an access to local memory at an address that is not known."""
    everything = [word for key, word in state.words.items() if key[0] == "local"]
    for register in registers:
        if is_load:
            state[register] = words.join(PLAIN, *everything)
        else:
            state.words[_UNKNOWN_CELL] = words.join(state[_UNKNOWN_CELL], _read(state, register))


def _shared(base: str, operands: tuple[str, ...], state: Registers) -> None:
    """Follow the other instructions that load from shared memory or store to it."""
    place = next(number for number, part in enumerate(operands) if part.startswith("["))
    before = state.load_shared()
    if base != "ldmatrix":
        state.store_shared(*(_read(state, name) for part in operands[place + 1 :] for name in _list(part)))
    for name in _list(operands[0]) if place else ():
        state[name] = before


def _size(qualifiers: list[str]) -> int:
    return next((int(match[1]) // 8 for q in qualifiers if (match := _WIDTH.match(q))), 8)


def _copy_cells(state: Registers, source: str, target: str) -> None:
    """Copy a parameter with its parts, which are named by their offsets."""
    for name in [name for name in state.words if isinstance(name, str) and name.partition("+")[0] == source]:
        state.words[target + name[len(source) :]] = state.words[name]


def _address(place: str, state: Registers) -> Word:
    match = _ADDRESS.match(place)
    return PLAIN if match is None else _read(state, match[1].strip())


def _arithmetic(base: str, qualifiers: list[str], operands: tuple[str, ...], state: Registers) -> None:
    targets = _list(operands[0].split("|")[0])
    if not targets or base in ("setp", "bar", "barrier", "fence", "membar", "mbarrier", "cp", "wgmma", "nanosleep"):
        return
    sources = operands[1:]
    if base == "mov" and (operands[0].startswith("{") or (sources and sources[0].startswith("{"))):
        _pack(targets, sources, "b128" in qualifiers, state)
        return
    read = [_read(state, part) for part in sources]
    if any(q in ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2") for q in qualifiers) and base not in ("mov", "selp"):
        result = PLAIN
    elif base in _NUMBERS or _is_narrow(base, qualifiers):
        result = words.index(*read)
    elif base == "mad" or base == "fma":
        result = words.add(words.product(read[0], read[1]), read[2])
    elif base == "mul":
        result = words.product(read[0], read[1])
        if "hi" in qualifiers:
            result = words.scale(result, MANY)
    elif (rule := _RULES.get(base)) is not None:
        result = rule(read)
    else:
        result = words.opaque(*read)
    for name in targets:
        state[name] = result


def _is_narrow(base: str, qualifiers: list[str]) -> bool:
    """Return whether an operation on integers of 32 bits or less makes no part of an address, as one with carry may."""
    if base == "cvt":
        return _size(qualifiers) <= 2
    return base in _WITHIN_REGISTER and not {"wide", "cc"}.intersection(qualifiers) and _size(qualifiers) <= 4


def _pack(targets: tuple[str, ...], sources: tuple[str, ...], is_pair: bool, state: Registers) -> None:
    """Follow a move that splits a register into parts, or makes one of parts; ``is_pair``: of two 64-bit values."""
    parts = _list(sources[0])
    if is_pair:
        for name in targets:
            state[name] = words.join(*(_read(state, part) for part in parts))
    elif len(targets) == 1:
        state[targets[0]] = _read(state, parts[0])
    else:
        whole = _read(state, parts[0])
        for number, name in enumerate(targets):
            state[name] = words.upper(whole) if number and len(targets) == 2 else (PLAIN if number else whole)


_NUMBERS = ("div", "rem", "popc", "clz", "bfind", "fns", "dp2a", "dp4a", "mad24", "mul24", "sad")
_WITHIN_REGISTER = ("add", "sub", "mul", "mad", "neg", "abs", "shl", "shr", "bfe", "bfi", "brev")
_RULES: dict[str, Callable[[list[Word]], Word]] = {
    "mov": lambda w: w[0],
    "cvta": lambda w: w[0],
    "cvt": lambda w: w[0],
    "shfl": lambda w: w[0],
    "redux": lambda w: w[0],
    "add": lambda w: words.add(w[0], w[1]),
    "addc": lambda w: words.add(w[0], w[1]),
    "sub": lambda w: words.subtract(w[0], w[1]),
    "subc": lambda w: words.subtract(w[0], w[1]),
    "neg": lambda w: words.negative(w[0]),
    "shl": lambda w: words.shifted(w[0], w[1]),
    "shr": lambda w: words.shifted(w[0], w[1], right=True),
    "and": lambda w: words.masked(w[0], w[1]),
    "or": lambda w: words.add(w[0], w[1]),
    "xor": lambda w: words.add(w[0], w[1]),
    "selp": lambda w: words.join(w[0], w[1]),
    "slct": lambda w: words.join(w[0], w[1]),
    "min": lambda w: words.join(w[0], w[1]),
    "max": lambda w: words.join(w[0], w[1]),
}


def _ends(opcode: str) -> bool:
    return opcode.split(".")[0] in ("bra", "brx", "ret", "exit", "call", "trap")


def _list(operand: str) -> tuple[str, ...]:
    """Return the names in ``{a, b}``, ``(a, b)`` or ``a``."""
    return tuple(part.strip() for part in operand.strip("{}() ").split(",") if part.strip())


def _read(state: Registers, operand: str) -> Word:
    if depot := _DEPOT.match(operand):
        return words.constant(int(depot[1]) * _DEPOT_BYTES)
    try:
        return words.constant(int(operand.rstrip("U"), 0))
    except ValueError:
        return state[operand]
