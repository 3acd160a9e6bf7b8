"""Reader of PTX, as Triton keeps it in ``CompiledKernel.asm["ptx"]``: PTX as a fingerprint."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter

from harness.errors import HarnessError
from harness.isa.flow import ptx as flow
from harness.isa.flow.origin import UNKNOWN, Roots, origins
from harness.isa.ptx_code import Instruction, access_form, instructions, qualifiers
from harness.isa.record import Fingerprint, counted
from harness.isa.sources import Where

TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_JUMP = re.compile(r"\$L\w+")
_PARAMETER = re.compile(r"[\w$]+_param_(?=\d)")


def read(text: str, roots: Roots = UNKNOWN) -> Fingerprint:
    """Return the fingerprint of PTX. HarnessError if ``text`` is not PTX of one target, or has an unknown access."""
    target = TARGET.search(text)
    if not target:
        raise HarnessError(f"no .target in the PTX, which starts with {text[:60]!r}")
    code, where = instructions(text), places(text, roots)
    return Fingerprint(
        language="ptx",
        arch=target[1],
        sha256=hashlib.sha256(_normalised(code).encode()).hexdigest(),
        accesses=counted(
            (i.opcode, form, qualifiers(i.opcode), i.frames, where.get(number, "unattributed"))
            for number, i in enumerate(code)
            if (form := access_form(i.opcode, i.operands)) is not None
        ),
        instructions=len(code),
        barriers=sum(i.opcode.startswith(("bar.sync", "bar.red", "barrier")) for i in code),
        fences=dict(sorted(Counter(i.opcode for i in code if i.opcode.startswith(("fence", "membar"))).items())),
    )


@functools.lru_cache(maxsize=256)
def places(text: str, roots: Roots = UNKNOWN) -> dict[int, Where]:
    """Return where each access goes, by the number of its instruction; without those that cannot be reached."""
    forms = ((number, access_form(i.opcode, i.operands)) for number, i in enumerate(instructions(text)))
    writes = {number for number, form in forms if form is not None and form.kind != "load"}
    return origins(flow.addresses(text), writes, roots)


def _normalised(code: tuple[Instruction, ...]) -> str:
    """Return only the instructions, with labels and parameters renumbered: equal for equal code with any names."""
    names: dict[str, str] = {}

    def plain(operands: str) -> str:
        labelled = _JUMP.sub(lambda match: names.setdefault(match[0], f"L{len(names)}"), operands)
        return " ".join(_PARAMETER.sub("param_", labelled).split())

    return "\n".join(f"{i.opcode} {plain(i.operands)}" for i in code)
