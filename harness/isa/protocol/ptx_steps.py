"""PTX as programs of steps. Orders and scopes: PTX ISA, "Memory Consistency Model"."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from harness.isa.protocol.blocks import blocks
from harness.isa.protocol.program import Program, Scope, Step
from harness.isa.ptx_code import Instruction, Label, Table, access_form, code, qualifiers
from harness.isa.sources import Where

_WARP = 32
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_NAME = re.compile(r"[%$]?[A-Za-z_][\w$]*")
_RELEASES, _ACQUIRES = {"release", "acq_rel", "sc"}, {"acquire", "acq_rel", "sc"}
_OPERATIONS = {"exch": "swap", "cas": "cmpswap"}


def program(text: str, where: Mapping[int, Where]) -> Program:
    """Return the program of PTX with one kernel; ``where``: the verdict on each access, by its number."""
    listed: list[Instruction] = []
    labels: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    tables: dict[str, tuple[str, ...]] = {}
    for item in code(text):
        if isinstance(item, Label):
            labels.setdefault(item.name, []).append((len(listed), item.scope))
        elif isinstance(item, Table):
            tables[item.name] = item.labels
        elif isinstance(item, Instruction):
            listed.append(item)
    steps = [_step(number, i, where.get(number, "unattributed")) for number, i in enumerate(listed)]

    def target(label: str, scope: tuple[int, ...]) -> int:
        return max(labels[label], key=lambda place: (place[1] == scope[: len(place[1])], len(place[1])))[0]

    def following(number: int) -> list[int] | None:
        i = listed[number]
        base = i.opcode.split(".")[0]
        if base in ("ret", "exit", "trap"):
            return [number + 1] if i.guard else []
        operands = i.operands.replace(",", " ").split()
        if base == "brx":
            return [target(label, i.scope) for label in tables[operands[1]]]
        if base != "bra":
            return None
        return [target(operands[0], i.scope), *([number + 1] if i.guard else [])]

    targets = {at for places in labels.values() for at, _ in places}
    cut, edges = blocks(steps, targets, following)
    threads = _THREADS.search(text)
    return Program("ptx", cut, edges, -(-int(threads[1]) // _WARP) if threads else 1, needs_waits=False)


def _step(number: int, i: Instruction, where: Where) -> Step:
    text = f"{i.guard} {i.opcode} {i.operands}".strip()
    base = i.opcode.split(".")[0]
    operands = _OPERAND.findall(i.operands)
    names = [_names(part) for part in operands]
    guard = _names(i.guard.lstrip("@!"))
    everything = frozenset().union(guard, *names)
    first, rest = (names[0], frozenset().union(guard, *names[1:])) if names else (frozenset[str](), guard)
    form = access_form(i.opcode, i.operands)
    words = set(qualifiers(i.opcode))
    if form is not None:
        has_result = form.kind == "load" or base == "atom"
        return Step(
            text, number + 1, i.frames, rest if has_result else everything,
            first if has_result else frozenset(), form.kind, form.width, where,
            op=_operation(i.opcode) if form.kind == "atomic" else "",
            scope=_scope(words, form.kind),
            data=frozenset().union(*names[2:]) if base == "atom" else frozenset(),
            address=next((_names(part) for part in operands if part.startswith("[")), frozenset()),
            releases=_scope(words, form.kind) if words & _RELEASES else "",
            acquires=_scope(words, form.kind) if words & _ACQUIRES else "",
            guarded=bool(guard),
        )  # fmt: skip
    fence: Scope = ""
    if base == "fence" and "proxy" not in i.opcode:
        fence = _scope(set(i.opcode.split(".")), "atomic")
    elif base == "membar":
        fence = {"sys": "sys", "gl": "gpu"}.get(i.opcode.split(".")[1], "cta")  # type: ignore[assignment]
    reads, writes = (everything, frozenset[str]()) if base in _NO_RESULT else (rest, first)
    if "shared" in i.opcode:
        reads, writes = (reads | {"lds"}, writes) if base == "ld" else (reads, writes | {"lds"})
    return Step(
        text, number + 1, i.frames, reads, writes,
        releases=fence, acquires=fence,
        barrier=base in ("bar", "barrier") and not i.opcode.startswith("bar.warp"),
        sleeps=base == "nanosleep",
        guarded=bool(guard),
    )  # fmt: skip


def _operation(opcode: str) -> str:
    word = next((word for word in opcode.split(".")[1:] if word in _WORDS), "?")
    return _OPERATIONS.get(word, word)


_NO_RESULT = ("bra", "brx", "st", "bar", "barrier")
_WORDS = {"add", "exch", "cas", "and", "or", "xor", "inc", "dec", "min", "max"}


def _scope(words: set[str], kind: str) -> Scope:
    """Return the scope of a strong access. A volatile one is relaxed at system scope, an atomic has at least gpu."""
    if words & {"volatile", "mmio"}:
        return "sys"
    if not words & {"relaxed", "acquire", "release", "acq_rel", "sc"}:
        return "gpu" if kind == "atomic" else ""
    for word in ("sys", "gpu", "cluster", "cta"):
        if word in words:
            return "cta" if word in ("cluster", "cta") else word  # type: ignore[return-value]
    return "gpu"


@functools.lru_cache(maxsize=65536)
def _names(operand: str) -> frozenset[str]:
    return frozenset(_NAME.findall(operand))
