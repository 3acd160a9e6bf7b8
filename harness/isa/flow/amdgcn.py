"""Data flow of amdgcn listings: the addresses of every access to global memory, followed through the registers."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

from harness.isa.flow import words
from harness.isa.flow.loads import loaded
from harness.isa.flow.registers import Registers
from harness.isa.flow.shared import Shared
from harness.isa.flow.solve import Key, follow, solve
from harness.isa.flow.words import MANY, PLAIN, Token, Word
from harness.isa.listing import Instruction, Label, code
from harness.isa.mnemonics import access_form

_ENCODING = re.compile(r"_(e32|e64|sdwa|dpp|e64_dpp)$")
_REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])$")
_FAR = re.compile(r"\(([\w.$]+)-[\w.$]+\)&4294967295$")
_OFFSET = re.compile(r"\boffset:(-?\w+)")
_OFFSETS = re.compile(r"\boffset([01]):(\d+)")
_ARGUMENT = re.compile(r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)\s+\.value_kind:\s+(\w+)")
_NAMED = {
    "vcc": ("vcc_lo", "vcc_hi"), "exec": ("exec_lo", "exec_hi"), "flat_scratch": ("fs_lo", "fs_hi"),
}  # fmt: skip
_DWORDS = {"b32": 1, "b64": 2, "b96": 3, "b128": 4}
_MOST_CALLS = 16


def addresses(text: str) -> dict[int, set[Word]]:
    """Return the words of the address of each access to global memory, by the instruction's number in the listing."""
    flow = _Flow(text)
    follow(flow.shared, flow.solve)
    return flow.addresses


class _Flow:
    def __init__(self, text: str) -> None:
        self.code: list[Instruction] = []
        self.labels: dict[str, list[int]] = {}
        for item in code(text):
            if isinstance(item, Label):
                self.labels.setdefault(item.name, []).append(len(self.code))
            else:
                self.code.append(item)
        self.functions = set(re.findall(r"^\s*\.type\s+([^\s,]+),\s*@function", text, re.MULTILINE))
        names = re.findall(r"^\s*\.amdhsa_kernel\s+(\S+)", text, re.MULTILINE)
        self.kernel = str(names[0]) if names else ""
        self.directives = {
            name: int(value) for name, value in re.findall(r"^\s*\.amdhsa_(\w+)\s+(\d+)\s*$", text, re.MULTILINE)
        }
        metadata = text.partition(".amdgpu_metadata")[2]
        self.arguments = {
            int(offset): (number, int(size), kind)
            for number, (offset, size, kind) in enumerate(_ARGUMENT.findall(metadata))
        }
        self.steps = [_parsed(i) for i in self.code]
        self.shared = Shared()
        self.addresses: dict[int, set[Word]] = {}
        leaders = {0, *(at for places in self.labels.values() for at in places)}
        leaders |= {number + 1 for number, step in enumerate(self.steps) if _ends(step[0])}
        self.leaders = sorted(at for at in leaders if at < len(self.code))

    def solve(self) -> None:
        """Follow the code from its beginning."""
        self.addresses.clear()
        for start in self.starts():
            solve(start, self.entry(), self.run)

    def starts(self) -> list[int]:
        """Return the first instruction of the kernel; of every function if the listing does not name it."""
        if self.kernel in self.labels:
            return self.labels[self.kernel][:1]
        return sorted({at for name in self.functions for at in self.labels.get(name, ())}) or [0] * bool(self.code)

    def entry(self) -> Registers:
        """Return what the hardware passes: the address of the arguments, and those that it has loaded itself."""
        state, at = Registers(self.shared), 0
        for name, size in (
            ("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2),
            ("dispatch_id", 2), ("flat_scratch_init", 2), ("private_segment_size", 1),
        ):  # fmt: skip
            if self.directives.get(f"user_sgpr_{name}"):
                if name == "kernarg_segment_ptr":
                    # The constant is the offset: a function is passed the address of the arguments that it needs.
                    state[f"s{at}"] = words.of_token(Token("kernarg"))._replace(const=0)
                at += size
        first = self.directives.get("user_sgpr_kernarg_preload_offset", 0)
        for number in range(self.directives.get("user_sgpr_kernarg_preload_length", 0)):
            state[f"s{at + number}"] = self.argument(4 * (first + number))
        return state

    def argument(self, offset: int) -> Word:
        """Return the word of 4 bytes of the kernel's arguments."""
        number, size, kind = self.arguments.get(offset & ~7, (0, 0, ""))
        if size != 8:
            return PLAIN
        if kind.startswith("hidden_"):  # of the runtime, as the buffer of a print is
            return words.of_token(Token("host", 0, offset >> 2 & 1))
        letter = "p" if kind == "global_buffer" else "i"
        return words.of_token(Token(f"{letter}{number}", 0, offset >> 2 & 1))

    def run(self, key: Key, state: Registers) -> Iterator[tuple[Key, Registers]]:
        at, calls = key
        end = bisect_right(self.leaders, at)
        stop = self.leaders[end] if end < len(self.leaders) else len(self.code)
        for number in range(at, stop):
            mnemonic, operands, modifiers = self.steps[number]
            if _ends(mnemonic):
                yield from self._jump(number, mnemonic, operands, calls, state)
                return
            self._step(number, mnemonic, operands, modifiers, state)
        if stop < len(self.code):
            yield (stop, calls), state

    def _jump(
        self, number: int, mnemonic: str, operands: tuple[str, ...], calls: tuple[int, ...], state: Registers
    ) -> Iterator[tuple[Key, Registers]]:
        after = number + 1
        if mnemonic in ("s_swappc_b64", "s_call_b64"):
            target = operands[1]
            called = {target} if mnemonic == "s_call_b64" else _code_of(state[_names(target)[0]])
            for name in sorted(called & self.labels.keys() or self.functions - {self.kernel}):
                if len(calls) < _MOST_CALLS and name in self.labels:
                    yield (self.labels[name][0], (*calls, after)), state
        elif mnemonic == "s_setpc_b64":
            # A jump over more than 128 KiB goes by register, like a return.
            far = _code_of(state[_names(operands[0])[0]]) & self.labels.keys()
            for name in sorted(far):
                yield (self.labels[name][0], calls), state
            if calls and not far:
                yield (calls[-1], calls[:-1]), state
        elif mnemonic != "s_endpgm":
            if (target_at := self._target(operands[0], number)) is not None:
                yield (target_at, calls), state
            if mnemonic != "s_branch" and after < len(self.code):
                yield (after, calls), state

    def _target(self, label: str, number: int) -> int | None:
        places = self.labels.get(label, [])
        if label[:-1].isdigit():  # of an inline assembly: "1b" is the last one before, "1f" the next
            places = self.labels.get(label[:-1], [])
            behind = bisect_right(places, number)
            places = places[behind - 1 : behind] if label[-1] == "b" else places[behind:]
        return next((place for place in places if place < len(self.code)), None)

    def _step(self, number: int, mnemonic: str, o: tuple[str, ...], modifiers: str, state: Registers) -> None:
        if mnemonic.startswith(("global_", "flat_", "buffer_", "s_load", "s_buffer_load")):
            self._memory(number, mnemonic, o, modifiers, state)
        elif mnemonic.startswith("scratch_"):
            _scratch(mnemonic, o, modifiers, state)
        elif mnemonic.startswith("ds_"):
            _lds(mnemonic, o, state)
        elif "saveexec" in mnemonic or mnemonic.startswith("v_cmpx") or (o and o[0] == "exec"):
            _mask(mnemonic, o, state)
        elif mnemonic in _SPECIAL:
            _SPECIAL[mnemonic](o, modifiers, state)
        elif o and not mnemonic.startswith(_WITHOUT_RESULT):
            _arithmetic(mnemonic, o, modifiers, state)

    def _memory(self, number: int, mnemonic: str, o: tuple[str, ...], modifiers: str, state: Registers) -> None:
        form = access_form(mnemonic)
        if form is None:
            return
        if form.space == "scalar":
            target, pointer, offset = _names(o[0]), _read(state, o[1]), _read(state, o[2])
            self.addresses.setdefault(number, set()).add(pointer)
            if any(t.root == "kernarg" for t in words.tokens(pointer)):
                first = words.add(pointer, offset).const
                for at, name in enumerate(target):
                    unknown = words.of_token(Token("?", 1, at % 2))
                    state[name] = unknown if first is None else self.argument(first + 4 * at)
                return
            values = loaded(pointer, len(target)) if form.width >= 8 else (PLAIN,)
            for name, word in zip(target, values, strict=True):
                state[name] = word
            return
        target, address = _roles(form.kind, form.space, o, modifiers, state)
        self.addresses.setdefault(number, set()).add(address)
        if "_lds_" in mnemonic or re.search(r"\blds\b", modifiers):
            state.store_shared(*loaded(address, 2))
        elif target:
            values = loaded(address, len(target)) if form.width >= 8 else (PLAIN,) * len(target)
            for name, word in zip(target, values, strict=True):
                state[name] = word


def _roles(kind: str, space: str, o: tuple[str, ...], modifiers: str, state: Registers) -> tuple[tuple[str, ...], Word]:
    """Return the registers that an access writes, and its address: without offsets of 32 bits, which are indices."""
    if space == "buffer":
        resource = next(part for part in o if part.startswith("s[") and len(_names(part)) == 4)
        is_result = kind == "load" or (kind == "atomic" and "sc0" in modifiers.split())
        to_lds = o[0] == resource or (len(o) > 1 and o[1] == resource)
        return (() if to_lds or not is_result else _names(o[0])), _read(state, resource)
    plain = [part for part in o if part != "off"]
    is_scalar = space == "global" and plain[-1].startswith(("s[", "vcc"))
    saddr = plain.pop() if is_scalar else None
    has_result = kind == "load" or (kind == "atomic" and len(plain) == 3)
    if kind == "load" and len(plain) == 1:  # into LDS
        has_result = False
    target = _names(plain.pop(0)) if has_result else ()
    return target, _read(state, plain[0] if saddr is None else saddr)


def _scratch(mnemonic: str, o: tuple[str, ...], modifiers: str, state: Registers) -> None:
    """Follow spills: private memory is kept by address where that is known, and as a whole where it is not."""
    match = _OFFSET.search(modifiers)
    offset = int(match[1], 0) if match else 0
    is_load = mnemonic.startswith("scratch_load")
    data, parts = (o[0], o[1:]) if is_load else (o[1], (o[0], *o[2:]))
    known = [_read(state, part).const for part in parts if part != "off"]
    registers = _names(data)
    if None in known:
        everything = [word for key, word in state.words.items() if key[0] == "scratch"]
        for name in registers:
            if is_load:
                state[name] = words.join(state["scratch?"], *everything)
            else:
                state["scratch?"] = words.join(state["scratch?"], state[name])
        return
    at = offset + sum(value for value in known if value is not None)
    for number, name in enumerate(registers):
        cell = ("scratch", at + 4 * number)
        if is_load:
            state[name] = words.join(state[cell], state["scratch?"]) if "scratch?" in state.words else state[cell]
        else:
            state.words[cell] = state[name]


def _lds(mnemonic: str, o: tuple[str, ...], state: Registers) -> None:
    """Follow the local data share, whose contents are kept as one: what was stored may be what is loaded."""
    if "permute" in mnemonic:
        state[_names(o[0])[0]] = _read(state, o[2])
    elif "swizzle" in mnemonic:
        state[_names(o[0])[0]] = _read(state, o[1])
    elif mnemonic.startswith("ds_read"):
        is_number = mnemonic.startswith(("ds_read_u8", "ds_read_i8", "ds_read_u16", "ds_read_i16"))
        for name in _names(o[0]):
            state[name] = PLAIN if is_number else state.load_shared()
    else:
        has_result = "_rtn" in mnemonic
        for part in o[2:] if has_result else o[1:]:
            state.store_shared(*(state[name] for name in _names(part)))
        if has_result:
            for name in _names(o[0]):
                state[name] = state.load_shared()


def _mask(mnemonic: str, o: tuple[str, ...], state: Registers) -> None:
    """Follow the execution mask: where lanes are switched off, and where they are switched on again."""
    if "saveexec" in mnemonic:
        level = state.level(_read(state, o[1]))
        if mnemonic.startswith("s_or_"):
            level = max(0, len(state.saved) - 1) if level is None else level
            state.leave(level)
            mask = state.mask()
        else:
            mask = state.mask()
            if mnemonic.startswith("s_andn2_") and level is not None:
                mask = words.of_token(Token(f"mask {level}"))
            state.enter()
        for name in _names(o[0]):
            state[name] = mask
    elif mnemonic in ("s_or_b64", "s_mov_b64"):
        other = [part for part in o[1:] if part != "exec"]
        word = _read(state, other[0]) if other else PLAIN
        level = 0 if word.const == -1 else state.level(word)
        if level is not None:
            state.leave(level)
        elif mnemonic == "s_mov_b64":
            state.enter()
    elif not mnemonic.startswith("s_andn2"):  # which ends lanes of a loop: each keeps what it had then
        state.enter()


def _arithmetic(mnemonic: str, o: tuple[str, ...], modifiers: str, state: Registers) -> None:
    """Follow any other instruction: ``_RESULTS`` has the rules, and an instruction without one is opaque."""
    base = mnemonic.removeprefix("v_").removeprefix("s_")
    target = _names(o[0])
    sources = list(o[1:])
    if "_co_" in base or base.startswith(("mad_u64_u32", "mad_i64_i32")):
        del sources[0]  # the carry out
    rule = _rule(base)
    is_wide = len(target) == 2
    if rule is None or base.endswith(_FLOATS):
        result = words.opaque(*(state[name] for part in sources for name in _names(part)))
        if base.endswith(_FLOATS):
            result = PLAIN
        for name in target:
            state[name] = result
        return
    if base.startswith(("addk", "mulk")):
        sources = [o[0], o[1]]
    low = rule([_read(state, part) for part in sources])
    if "dpp" in modifiers or "quad_perm" in modifiers or "row_" in modifiers:
        low = words.join(state[target[0]], low) if target[0] in state.words else low
    high = PLAIN
    if is_wide:
        high = rule([_read(state, part, 1) for part in sources]) if _is_paired(base) else _high(base, sources, state)
        if low.const is not None and not _is_paired(base):
            high = words.constant(low.const >> 32)
    if target:
        state[target[0]] = low
    if is_wide:
        state[target[1]] = high


def _high(base: str, sources: list[str], state: Registers) -> Word:
    """Return the upper half of a 64-bit result, which matters only where it becomes a lower one by a move."""
    return words.join(*(_read(state, part, 1) for part in sources)) if sources else PLAIN


def _is_paired(base: str) -> bool:
    return base.startswith(("mov", "cselect", "and_b64", "or_b64", "xor_b64", "andn2_b64", "lshl_add_u64", "pk_mov"))


Rule = Callable[[list[Word]], Word]


def _add(w: list[Word]) -> Word:
    return words.add(w[0], w[1])


def _subtract(w: list[Word]) -> Word:
    return words.subtract(w[0], w[1])


_FLOATS = ("_f16", "_f32", "_f64", "_bf16")
_WITHOUT_RESULT = (
    "s_waitcnt", "s_nop", "s_cmp", "s_bitcmp", "s_barrier", "s_sleep", "s_setprio", "s_setreg", "s_trap", "s_icache",
    "s_dcache", "s_sendmsg", "s_sethalt", "v_nop", "s_set_gpr", "s_incperflevel", "s_decperflevel", "s_ttrace",
)  # fmt: skip
# The first pattern that matches the mnemonic, without its prefix and encoding, has the rule.
_RESULTS: tuple[tuple[str, Rule], ...] = (
    (r"(mov|movk)_|accvgpr_|readfirstlane|permlane|mov_b64", lambda w: w[0]),
    (r"cmovk?_", lambda w: w[0]),
    (r"(cndmask|cselect|min|max)_", lambda w: words.join(*w[:2])),
    (r"(min3|max3|med3)_", lambda w: words.join(*w)),
    (r"(add3)_", lambda w: words.add(words.add(w[0], w[1]), w[2])),
    (r"add_lshl_", lambda w: words.shifted(words.add(w[0], w[1]), w[2])),
    (r"lshl_(add|or)_", lambda w: words.add(words.shifted(w[0], w[1]), w[2])),
    (r"and_or_", lambda w: words.add(words.masked(w[0], w[1]), w[2])),
    (r"or3_|xor3_", lambda w: words.add(words.add(w[0], w[1]), w[2])),
    (r"xad_", lambda w: words.add(words.add(w[0], w[1]), w[2])),
    (r"(add|addc|addk)_", _add),
    (r"(sub|subb)_", _subtract),
    (r"(subrev|subbrev)_", lambda w: words.subtract(w[1], w[0])),
    (r"mad_", lambda w: words.add(words.product(w[0], w[1]), w[2])),
    (r"mul_hi", lambda w: words.add(words.scale(w[0], MANY), words.scale(w[1], MANY))),
    (r"mul", lambda w: words.product(w[0], w[1])),
    (r"lshl_", lambda w: words.shifted(w[0], w[1])),
    (r"(lshr|ashr)_", lambda w: words.shifted(w[0], w[1], right=True)),
    (r"lshlrev_", lambda w: words.shifted(w[1], w[0])),
    (r"(lshrrev|ashrrev)_", lambda w: words.shifted(w[1], w[0], right=True)),
    (r"alignbit_", lambda w: words.shifted(w[1], w[2], right=True)),
    (r"(and)_", lambda w: words.masked(w[0], w[1])),
    (r"(andn2)_", lambda w: w[0]),
    (r"(or|xor)_", _add),
    (r"(bfe|mbcnt|cmp|bcnt|ff|flbit|getreg|getpc|memtime|memrealtime|sad|bfm|ffb)", lambda w: PLAIN),
)


def _read_lane(o: tuple[str, ...], modifiers: str, state: Registers) -> None:
    lane, name = _read(state, o[2]).const, _names(o[1])[0]
    state[_names(o[0])[0]] = state.words.get(("lane", name, lane), state[name])


def _write_lane(o: tuple[str, ...], modifiers: str, state: Registers) -> None:
    lane, name, word = _read(state, o[2]).const, _names(o[0])[0], _read(state, o[1])
    if lane is None:
        state[name] = words.join(state[name], word)
    else:
        state.set_lane(name, lane, word)


def _swap(o: tuple[str, ...], modifiers: str, state: Registers) -> None:
    """Follow an exchange of registers, or of some of their lanes."""
    one, other = _names(o[0])[0], _names(o[1])[0]
    state[one] = state[other] = words.join(state[one], state[other])


def _shift_add(places: int) -> Callable[[tuple[str, ...], str, Registers], None]:
    def step(o: tuple[str, ...], modifiers: str, state: Registers) -> None:
        state[_names(o[0])[0]] = words.add(words.scale(_read(state, o[1]), 2**places), _read(state, o[2]))

    return step


def _pack_moves(o: tuple[str, ...], modifiers: str, state: Registers) -> None:
    """Follow ``v_pk_mov_b32``: ``op_sel`` selects a half of each source."""
    match = re.search(r"op_sel:\[([01]),([01])\]", modifiers)
    halves = (int(match[1]), int(match[2])) if match else (0, 0)
    values = [_read(state, part, half) for part, half in zip(o[1:3], halves, strict=True)]
    for name, word in zip(_names(o[0]), values, strict=True):
        state[name] = word


_SPECIAL: dict[str, Callable[[tuple[str, ...], str, Registers], None]] = {
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_swap_b32": _swap,
    "v_permlane32_swap_b32": _swap,
    "v_permlane16_swap_b32": _swap,
    "v_pk_mov_b32": _pack_moves,
    **{f"s_lshl{places}_add_u32": _shift_add(places) for places in (1, 2, 3, 4)},
}


def _parsed(instruction: Instruction) -> tuple[str, tuple[str, ...], str]:
    """Return mnemonic without encoding, operands without modifiers, and all modifiers."""
    mnemonic = _ENCODING.sub("", instruction.mnemonic)
    operands, modifiers = [], []
    for part in re.split(r",\s*(?![^\[]*\])", instruction.operands):
        head, _, tail = part.strip().partition(" ")
        if head and not re.match(r"(offset\d?:|sc0|sc1|nt\b|quad_perm|row_|op_sel|lds\b)", head):
            operands.append(head)
            modifiers.append(tail)
        else:
            modifiers.append(part)
    return mnemonic, tuple(operands), " ".join(modifiers) + (" dpp" if "_dpp" in instruction.mnemonic else "")


@functools.cache
def _rule(base: str) -> Callable[[list[Word]], Word] | None:
    """Return the rule of an instruction without its first letter; None if it has none."""
    return next((rule for pattern, rule in _RESULTS if re.match(pattern, base)), None)


@functools.cache
def _ends(mnemonic: str) -> bool:
    return mnemonic.startswith(("s_cbranch", "s_branch", "s_endpgm", "s_setpc", "s_swappc", "s_call"))


@functools.lru_cache(maxsize=65536)
def _names(operand: str) -> tuple[str, ...]:
    """Return the registers of an operand, lowest first."""
    text = operand.lstrip("-").strip("|")
    if match := _REGISTER.match(text):
        first = int(match[2] or match[3])
        return tuple(f"{match[1]}{number}" for number in range(first, int(match[4] or first) + 1))
    if text in _NAMED:
        return _NAMED[text]
    return (text,) if text in ("vcc_lo", "vcc_hi", "exec_lo", "exec_hi", "m0") else ()


def _read(state: Registers, operand: str, half: int = 0) -> Word:
    """Return the word of a source: of its lower register, or of the upper one of a pair."""
    if operand == "exec":
        return state.mask()
    if names := _names(operand):
        return state[names[half]] if half < len(names) else PLAIN
    return _value(operand, half)


@functools.lru_cache(maxsize=65536)
def _value(operand: str, half: int) -> Word:
    """Return the word of a number, or of an address of code."""
    name, sign, rest = operand.partition("@")
    if sign and rest.startswith(("rel32@lo", "gotpcrel32@lo")):
        return words.of_token(Token(f"code {name}"))
    if far := _FAR.match(operand):
        return words.of_token(Token(f"code {far[1]}"))
    try:
        value = int(operand, 0)
    except ValueError:
        return PLAIN
    if half:
        return words.constant(-1 if value < 0 else 0)
    return words.constant(value - (1 << 32) if value >> 31 == 1 else value)


def _code_of(word: Word) -> set[str]:
    return {t.root.removeprefix("code ") for t in words.tokens(word) if t.root.startswith("code ")}
