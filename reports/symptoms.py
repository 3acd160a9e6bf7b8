"""The symptom of a failing case: its first wrong fact, in words and as a key that cases with one cause share.

A key has no rank, element, address or shape. Failures with a source line of the library have that line in the key;
others have the operation in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.evidence import Case, Difference, Requirement, Verdict

_RAISED = re.compile(r"rank \d+ raised (\w+): (.*)", re.DOTALL)
_INSTRUCTION = re.compile(r"instruction '([^']+)'")
_KERNEL = re.compile(r"by kernel (\w+)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_LINE = re.compile(r"(?<![^\s@:(\"'])([^\s@:(\"']{1,300}\.py):(\d{1,9})")
_FOREIGN = ("/site-packages/", "/lib/python", "/fixtures/", "/harness/", "<")
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|(?<![A-Za-z])[-+]?\d[\d.,e+-]*|'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\[\]]*\]")
_RUNNING = re.compile(r"running wavefront \d+ at '[^']*' \(([^()]{1,4000})\)")
_POLLING = re.compile(
    r"polling (0x[0-9a-f]+) \((?:inside )?([^,()\[]{1,200})[^\n]{0,400}?\), which holds (0x[0-9a-f]+)"
    r"(?:, by '[^'\n]{0,200}', compared with (0x[0-9a-f]+))?"
)
_IDLE = "no kernel is running on the emulated device"
_CODE = re.compile(r"code of (.{1,200})")
_MISSING = re.compile(r"\bmissing (.{1,200}?)(?: between |$)")
_AT = re.compile(r"' at (.{1,300}?)(?= and the | is not |$)")
_QUOTED = re.compile(r"'([^']{1,200})'")
_SIZE = re.compile(r"^\d+-byte ")
VAGUE = "other"
_CLAUSE, _FRAMES = 160, 3
_SEARCHED = 20_000
"""Characters of a long text that are searched for source lines."""


@dataclass(frozen=True)
class Symptom:
    """Symptom of one case. ``key``: equal for cases that fail alike; ``title``: the fact in words; ``source``: the
    innermost source line of the library, ``calls`` the lines that called it; ``kernel`` and ``instruction`` where the
    failure names them; ``waits``: the words that the ranks of a hang poll; ``fact``: the kind of
    a wrong element, ``VAGUE`` if nothing is known of its value."""

    key: tuple[str, ...]
    title: str
    source: str = ""
    calls: tuple[str, ...] = ()
    kernel: str = ""
    instruction: str = ""
    waits: tuple[str, ...] = ()
    fact: str = ""


def symptom_of(
    case: Case,
    requirement: Requirement | None,
    stores: Sequence[Mapping[str, Any]] = (),
    fences: Sequence[Mapping[str, Any]] = (),
) -> Symptom:
    """Return the symptom of a case that did not pass. ``stores``: those that wrote the wrong element; ``fences``: those
    that its kernels lack; see ``harness.evidence.Group``."""
    subject = _subject(case, requirement)
    if case.verdict is not Verdict.FAIL:
        return Symptom(("unknown", _constant(case.message)), f"{subject} could not be checked: {_clause(case.message)}")
    if case.fault:
        return _of_fault(case, subject)
    if raised := _RAISED.match(case.message):
        return _of_exception(case, subject, raised[1], raised[2])
    if fences and case.differs is not None:
        return _of_fence(fences[0], case.differs, subject)
    if case.differs is not None and (code := _CODE.fullmatch(case.differs.what)):
        return _of_code(code[1], str(case.differs.got))
    if case.differs is not None:
        return _of_difference(case.differs, subject, stores)
    if case.stacks:
        hang = _of_hang(case, subject)
        return _of_hang_without_fence(fences[0], hang, subject) if fences else hang
    return Symptom((_constant(case.message), subject), f"{subject}: {_clause(case.message)}")


def _subject(case: Case, requirement: Requirement | None) -> str:
    """Return the operation that a case tests: what its test or its case names, else the first public name that its
    requirement covers."""
    names = [name.rpartition(".")[2] for name in requirement.covers] if requirement is not None else []
    for values in (case.case.get("data", {}), case.case["fields"]):
        for name in ("op", "name"):
            op = values.get(name)
            if isinstance(op, str) and op.isidentifier():
                return next((each for each in names if each == op or each.endswith(f"_{op}")), op)
    return names[0] if names else case.requirement


def _of_difference(difference: Difference, subject: str, stores: Sequence[Mapping[str, Any]]) -> Symptom:
    kind, words = _fact(difference)
    last = stores[-1] if stores else {}
    source, *calls = (part.strip() for part in str(last.get("source", "")).split(" @ "))
    constant = _constant(difference.what) if difference.detail is None else ""
    return Symptom(
        (kind, constant, _stem(source) or subject),
        f"{subject} {words}",
        source,
        tuple(calls),
        str(last.get("kernel", "")),
        str(last.get("instruction", "")),
        fact=kind if difference.detail is not None else "",
    )


def _of_fence(lack: Mapping[str, Any], difference: Difference, subject: str) -> Symptom:
    """Return the symptom of a case that failed in weak memory, and whose kernel lacks a fence."""
    _, words = _fact(difference)
    return Symptom(
        ("fence", lack["missing"], _stem(lack["source"]) or subject),
        f"{subject} {words} in weak memory: {lack['kernel']} lacks {lack['missing']}",
        lack["source"],
        kernel=lack["kernel"],
        instruction=lack["instruction"],
    )


def _of_hang_without_fence(lack: Mapping[str, Any], hang: Symptom, subject: str) -> Symptom:
    """Return the symptom of a hang in weak memory only, of a kernel that lacks a fence."""
    return replace(
        hang,
        key=("fence", lack["missing"], _stem(lack["source"]) or subject),
        title=f"{subject} did not end in weak memory: {lack['kernel']} lacks {lack['missing']}",
        source=lack["source"],
        kernel=lack["kernel"],
        instruction=lack["instruction"],
    )


def _of_code(call: str, broken: str) -> Symptom:
    """Return the symptom of compiled code that breaks the contract of a call: ``broken`` states how, in one clause.

    Code that lacks an instruction has the same key as a case that failed in weak memory for the lack of it.
    """
    kernel, _, clause = broken[:_SEARCHED].partition(": ")
    missing, places, instructions = _MISSING.search(clause), _AT.findall(clause), _QUOTED.findall(clause)
    source = places[-1] if places else ""
    name = kernel.partition(" (")[0]
    title = f"{name} lacks {missing[1]}" if missing else _clause(broken)
    key = ("fence", missing[1]) if missing else ("code", _constant(clause))
    return Symptom(
        (*key, _stem(source) or call),
        f"{call}: {title}",
        source,
        kernel=name,
        instruction=instructions[-1] if instructions else "",
    )


def _fact(difference: Difference) -> tuple[str, str]:
    """Return a kind of wrong fact and the words for it, to follow the name of the operation."""
    detail = difference.detail
    if detail is None:
        return "value", f"gave a wrong result: {_clause(difference.what)}"
    place, got, wanted = detail["place"], detail["got"], detail["wanted"]
    region = detail["region"]
    if place == "masked":
        return "masked", "wrote lanes that the mask switches off"
    if place == "after":
        return "after", f"wrote past the end of {region}"
    if place == "before":
        return "before", f"wrote before the start of {region}"
    if place == "outside":
        return "outside", "wrote memory that it was not given"
    if wanted["kind"] == "unwritten":
        return "kept", f"wrote elements of {region} that must stay as they were"
    if region.startswith(("source", "input")):
        return "input", "changed its input"
    if got["kind"] == "unwritten":
        if got.get("rank") == difference.rank:
            return "missing", "left elements unwritten"
        return "foreign", f"delivered memory of rank {got.get('rank')} that was never written"
    if got["kind"] == "zero":
        return "zero", "delivered zeros"
    if got["kind"] == "reduction":
        return ("twice", "counted a member's part twice") if "twice" in got else ("part", "left out a member's part")
    if got["kind"] != "payload" or wanted["kind"] != "payload":
        unsent = (got["kind"], wanted["kind"]) == ("unknown", "payload")
        return VAGUE, "gave values that no rank sent" if unsent else "gave wrong values"
    if (got.get("round"), got.get("call")) != (wanted.get("round"), wanted.get("call")):
        return "stale", "delivered the data of another call"
    if got.get("rank") != wanted.get("rank"):
        return "rank", "delivered another rank's elements"
    if got.get("element") != wanted.get("element"):
        return "element", "delivered elements of another place"
    return "bits", "changed bits of the elements that it moved"


def _of_fault(case: Case, subject: str) -> Symptom:
    fault = (case.fault or "")[:_SEARCHED]
    lines = tuple(part.strip() for part in (case.fault_source or "").split(" @ ") if part.strip())
    raised = _RAISED.match(case.message)
    kind = raised[1] if raised else "fault"
    clause = _SIZE.sub("", _clause(fault.partition(":")[0]))
    source = lines[0] if lines else next((":".join(each) for each in _LINE.findall(fault)), "")
    kernel, instruction = _KERNEL.search(fault), _INSTRUCTION.search(fault)
    return Symptom(
        (kind, _constant(clause), _stem(source) or subject),
        f"{subject} raised {kind}: {clause}",
        source,
        lines[1:],
        kernel[1] if kernel else "",
        instruction[1] if instruction else "",
    )


def _of_exception(case: Case, subject: str, kind: str, message: str) -> Symptom:
    frames = [
        f"{path}:{line}"
        for path, line, _ in _FRAME.findall((case.traceback or "")[-_SEARCHED:])
        if not any(part in path for part in _FOREIGN)
    ]
    source = frames[-1] if frames else ""
    clause = _clause(message)
    calls = tuple(reversed(frames[-_FRAMES:-1]))
    # The line alone is the cause; what the exception states may name the arguments of the case.
    key = (kind, _stem(source)) if source else (kind, _constant(clause), subject)
    return Symptom(key, f"{subject} raised {kind}: {clause}", source, calls)


def _of_hang(case: Case, subject: str) -> Symptom:
    """Return the symptom of a hang: where the kernel's own code waits, else where a rank's process does.

    A polling loop can be interrupted at any of its lines, so the line is that of the statement in the kernel's body
    that waits: the last but one of the chain of calls.
    """
    texts = {rank: text[:_SEARCHED] for rank, text in (case.stacks or {}).items()}
    waits = tuple(wait for rank, text in texts.items() if (wait := _wait_of(rank, text)))
    stacks = "\n".join(texts.values())
    if running := _RUNNING.search(stacks):
        chain = [part.strip() for part in running[1].split(" @ ")]
        lines = chain[-2:-1] or chain
    else:
        frames = [f"{path}:{line}" for path, line, _ in _FRAME.findall(stacks)]
        frames += [f"{path}:{line}" for path, line in _LINE.findall(stacks)]
        lines = [frame for frame in frames if not any(part in frame for part in _FOREIGN)]
    source = lines[0] if lines else ""
    return Symptom(("hang", _stem(source) or subject), f"{subject} did not end: its ranks wait", source, waits=waits)


def _wait_of(rank: str, text: str) -> str:
    """Return what a rank of a hang waits for, or that it runs no kernel: another rank may wait for its stores."""
    if polled := _POLLING.search(text):
        wanted = f" and is compared with {polled[4]}" if polled[4] else ""
        return f"rank {rank} polls {polled[1]} in {polled[2].strip()}, which holds {polled[3]}{wanted}"
    return f"rank {rank} runs no kernel" if _IDLE in text else ""


def _stem(source: str) -> str:
    """Return file and line of a source position, without its folder and column: copies of a library lie anywhere."""
    match = _LINE.search(source)
    return f"{'/'.join(match[1].split('/')[-2:])}:{match[2]}" if match else ""


def _constant(text: str) -> str:
    """Return a text without numbers, quotations, tuples and lists, which change from case to case."""
    return " ".join(_VARIABLE.sub("#", _clause(text)).split())


def _clause(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "no message"
    return line if len(line) <= _CLAUSE else line[:_CLAUSE].rstrip() + "..."
