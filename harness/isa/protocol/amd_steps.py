"""Amdgcn listings as programs of steps. Bits and fences: LLVM, "Memory Model gfx942" (AMDGPUUsage)."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Mapping

from harness.isa.listing import Instruction, Label, code
from harness.isa.mnemonics import access_form
from harness.isa.protocol.blocks import blocks
from harness.isa.protocol.program import Program, Scope, Step
from harness.isa.record import AccessForm
from harness.isa.sources import Where

_LANES = 64
_THREADS = re.compile(r"\.max_flat_workgroup_size:\s+(\d+)")
_REGISTER = re.compile(
    r"\b([vsa])(?:(\d+)|\[(\d+):(\d+)\])|\b(vcc|exec|scc|m0|flat_scratch)\b|\b(vcc|exec)_(?:lo|hi)\b"
)
_BITS: dict[frozenset[str], Scope] = {
    frozenset(): "", frozenset({"sc0"}): "cta", frozenset({"sc1"}): "gpu", frozenset({"sc0", "sc1"}): "sys",
}  # fmt: skip
_READ_SCC = ("s_cselect", "s_cmov", "s_addc", "s_subb", "s_cbranch_scc")
_KEEP_SCC = (
    "s_mov",
    "s_cmov",
    "s_cselect",
    "s_mul_",
    "s_mulk",
    "s_movk",
    "s_bfm",
    "s_brev",
    "s_sext",
    "s_getreg",
    "s_load",
)
_NO_RESULT = ("s_waitcnt", "s_nop", "s_barrier", "s_sleep", "s_cbranch", "s_branch", "s_endpgm", "s_setprio", "s_trap")


def program(text: str, where: Mapping[int, Where]) -> Program:
    """Return the program of a listing; ``where``: the verdict on each access, by its line."""
    listed: list[Instruction] = []
    labels: dict[str, list[int]] = {}
    for item in code(text):
        if isinstance(item, Label):
            labels.setdefault(item.name, []).append(len(listed))
        else:
            listed.append(item)
    steps = [_step(i, where.get(i.line, "unattributed")) for i in listed]

    def following(number: int) -> list[int] | None:
        i = listed[number]
        if i.mnemonic in ("s_endpgm", "s_setpc_b64"):
            return []
        if not i.mnemonic.startswith(("s_branch", "s_cbranch")):
            return None
        target = _target(labels, i.operands.split()[0], number)
        return target if i.mnemonic == "s_branch" else [*target, number + 1]

    targets = {at for places in labels.values() for at in places}
    cut, edges = blocks(steps, targets, following)
    threads = _THREADS.search(text)
    return Program("amdgcn", cut, edges, -(-int(threads[1]) // _LANES) if threads else 1, needs_waits=True)


def _target(labels: Mapping[str, list[int]], label: str, number: int) -> list[int]:
    places = labels.get(label, [])
    if label[:-1].isdigit():  # of an inline assembly: "1b" is the last one before, "1f" the next
        places = labels.get(label[:-1], [])
        behind = bisect_right(places, number)
        places = places[behind - 1 : behind] if label[-1] == "b" else places[behind:]
    return places[:1]


def _step(i: Instruction, where: Where) -> Step:
    text, mnemonic = f"{i.mnemonic} {i.operands}".strip(), i.mnemonic
    form = access_form(mnemonic)
    operands = _operands(i.operands)
    if form is not None and form.space != "scalar":
        return _access(i, text, form, where, frozenset(i.bits) - {"nt"})
    reads, writes = _flow(mnemonic, operands)
    return Step(
        text, i.line, i.frames, reads, writes,
        releases=_BITS[frozenset(i.bits)] if mnemonic == "buffer_wbl2" else "",
        acquires=_BITS[frozenset(i.bits)] if mnemonic == "buffer_inv" else "",
        waits=mnemonic == "s_waitcnt" and ("vmcnt(0)" in i.operands or i.operands.strip() == "0"),
        barrier=mnemonic == "s_barrier",
        sleeps=mnemonic == "s_sleep",
    )  # fmt: skip


def _access(i: Instruction, text: str, form: AccessForm, where: Where, bits: frozenset[str]) -> Step:
    """Return the step of a vector access. ``sc0`` of an atomic is not a scope: it returns the old value."""
    registers = [_registers(part) for part in _operands(i.operands)]
    into_lds = i.operands.endswith(" lds") or "_lds_" in i.mnemonic  # such a load has no register for its result
    returns = (form.kind == "load" and not into_lds) or (form.kind == "atomic" and "sc0" in bits)
    # global_store ADDRESS, DATA, BASE; buffer_store DATA, OFFSET, RESOURCE, BASE; a result comes first.
    place = None if form.kind == "load" else int(form.space != "buffer") + int(returns and form.space != "buffer")
    data = frozenset[str]() if place is None else registers[place]
    address = frozenset[str]().union(
        *(one for number, one in enumerate(registers) if number not in (place, returns - 1))
    )
    scope = ("sys" if "sc1" in bits else "gpu") if form.kind == "atomic" else _BITS[bits]
    return Step(
        text, i.line, i.frames, address | data, registers[0] if returns else frozenset(), form.kind, form.width, where,
        op=i.mnemonic.partition("_atomic_")[2].removesuffix("_x2"), scope=scope, data=data, address=address,
    )  # fmt: skip


@functools.lru_cache(maxsize=65536)
def _operands(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in re.split(r",\s*(?![^\[]*\])", text))


@functools.lru_cache(maxsize=65536)
def _registers(operand: str) -> frozenset[str]:
    names: set[str] = set()
    for kind, one, first, last, whole, half in _REGISTER.findall(operand):
        if kind:
            low, high = int(one or first), int(one or last)
            names.update(f"{kind}{number}" for number in range(low, high + 1))
        else:
            names.add(whole or half)
    return frozenset(names)


@functools.lru_cache(maxsize=65536)
def _flow(mnemonic: str, operands: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers that an instruction without an access to global memory reads and writes."""
    registers = [_registers(part) for part in operands]
    everything = frozenset().union(*registers)
    first = registers[0] if registers else frozenset[str]()
    if mnemonic.startswith("ds_"):
        if mnemonic.startswith(("ds_read", "ds_bpermute", "ds_permute", "ds_swizzle")) or "_rtn" in mnemonic:
            return (everything - first) | {"lds"}, first
        return everything, frozenset({"lds"})
    implicit = set()
    if mnemonic.startswith(_READ_SCC):
        implicit.add("scc")
    if mnemonic.startswith("s_cbranch_vcc"):
        implicit.add("vcc")
    if mnemonic.startswith("s_cbranch_exec"):
        implicit.add("exec")
    if mnemonic.startswith(("s_cmp", "s_bitcmp")):
        return everything | implicit, frozenset({"scc"})
    if mnemonic.startswith("v_cmpx"):
        return everything, first | {"exec"}
    if mnemonic.startswith(_NO_RESULT):
        return everything | implicit, frozenset()
    writes = set(first)
    reads = set(frozenset().union(*registers[1:])) | implicit if registers else set(implicit)
    if "_co_" in mnemonic and len(registers) > 1:
        writes |= registers[1]
    if mnemonic.startswith("v_cndmask") and len(operands) == 3:
        reads.add("vcc")
    if mnemonic.startswith(("v_fmac", "v_mac", "v_mfma", "v_pk_fma")):
        reads |= first
    if "saveexec" in mnemonic:
        reads.add("exec")
        writes.add("exec")
    if mnemonic.startswith("s_") and not mnemonic.startswith(_KEEP_SCC):
        writes.add("scc")
    return frozenset(reads), frozenset(writes)
