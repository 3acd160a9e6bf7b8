"""Read an amdgcn listing, the text that Triton stores as ``CompiledKernel.asm["amdgcn"]``.

All text is parsed here, once per kernel. The result holds instructions with split operands and modifiers, labels as
instruction indices, the ``.amdhsa_*`` directives (LLVM AMDGPUUsage, "Code Object Kernel Descriptor"), the kernel's
entry of the ``amdhsa.kernels`` metadata, and for each instruction the source position with its inline chain from the
``.loc`` comments.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import yaml

from harness.emulator.faults import ListingError
from harness.emulator.listing import limits, symbols
from harness.emulator.listing.instructions import Instruction, Listing
from harness.emulator.listing.spellings import canonical
from harness.isa.listing import Position
from harness.isa.sources import Frame

# A modifier may follow the operands without a comma: flags, and name:value pairs.
_MODIFIER = re.compile(
    r"(?P<name>offset\d?|sc0|sc1|nt|glc|slc|dlc|offen|idxen|lds|gds|clamp|mul|div|dst_sel|dst_unused|src0_sel|src1_sel"
    r"|row_shl|row_shr|row_ror|row_bcast|row_newbcast|row_mirror|row_half_mirror|wave_shl|wave_shr|wave_rol|wave_ror"
    r"|quad_perm|row_mask|bank_mask|bound_ctrl|op_sel|op_sel_hi|neg_lo|neg_hi|cbsz|abid|blgp|fi|unorm|tfe|format"
    r"|bitop3|byte_sel|neg|abs|matrix_\w+)"
    r"(?::(?P<value>\[[^\]]*\]|swizzle\([^)]*\)|[^\s,]+))?$"
)
_LABEL = re.compile(r"([.\w$]+):")
# A numeric label may be defined several times: "1b" is the previous one, "1f" the next (GNU as, "Local Labels").
_LOCAL = re.compile(r"(s_c?branch\S*\s+)(\d+)([bf])$")


def parse(text: str) -> Listing:
    """Parse the listing of one kernel.

    Raises ``ListingError`` (a ``ValueError``) that names the line if the text is not an amdgcn listing of one gfx9
    kernel.
    """
    name = _kernel_name(text)
    arch_match = re.search(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)', text) or re.search(
        r"amdhsa\.target:\s*\S*-(gfx\w+)", text
    )
    if arch_match is None:
        raise ListingError(f"kernel {name}: the listing names no target: expected an .amdgcn_target directive")
    listing = Listing(name=name, arch=arch_match.group(1), metadata=_metadata(text, name))
    limits.check_arch(listing)
    functions = _functions(text, name, listing)
    # The kernel's own code is placed first, because the program starts there.
    for body in sorted(functions, key=lambda body: body.name != name):
        first = len(listing.instructions)
        listing.labels[body.name] = first
        listing.labels |= {label: first + at for label, at in body.labels.items()}
        if body.name == name:
            listing.entry = body.entry
        for code, number, frames in body.code:
            listing.instructions.append(_instruction(code, len(listing.instructions), number, frames))
    if not listing.instructions:
        raise ListingError(f"kernel {name}: the listing holds no instructions")
    if listing.directives.get("user_sgpr_kernarg_preload_length", 0) == 0:
        listing.entry = 0
    listing.instructions, listing.constants = symbols.resolve(name, text, listing.instructions, listing.labels)
    return listing


@dataclass
class _Function:
    """The lines of one function: (code, line number, frames)."""

    name: str
    code: list[tuple[str, int, tuple[Frame, ...]]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    entry: int = 0


def _functions(text: str, kernel: str, listing: Listing) -> list[_Function]:
    names = {kernel, *re.findall(r"^\s*\.type\s+([^\s,]+),\s*@function", text, re.MULTILINE)}
    functions: list[_Function] = []
    body: _Function | None = None
    metadata = False
    position = Position()
    seen: Counter[str] = Counter()
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if position.read(line):
            continue
        if line in (".amdgpu_metadata", ".end_amdgpu_metadata"):
            metadata = line == ".amdgpu_metadata"
        elif metadata:
            continue
        code = line.partition(";")[0].rstrip()
        if not code:
            continue
        label = _LABEL.match(code) if ":" in code else None
        is_directive = label is None and code[0] == "."
        if is_directive:
            limits.check_directive(kernel, number, code)
        if is_directive and code.startswith(".amdhsa_"):
            _directive(listing, code)  # inside or after the body, depending on Triton's version
        elif body is None:
            if label and label.group(1) in names:
                body = _Function(label.group(1))
                functions.append(body)
        elif code.startswith(".Lfunc_end"):
            body = None
        elif label:
            which = label.group(1)
            if which.isdigit():
                seen[which] += 1
                which = f"{which}#{seen[which]}"
            body.labels[which] = len(body.code)
        elif is_directive:
            if code.split()[:2] == [".p2align", "8"]:
                # The 256-byte fallback prologue ends here: firmware that preloads kernargs enters after it.
                body.entry = len(body.code)
        else:
            if code.startswith("s_") and (branch := _LOCAL.match(code)):
                to, which, where = branch.groups()
                code = f"{to}{which}#{seen[which] + (where == 'f')}"
            body.code.append((code, number, _known(position.frames)))
    return functions


def _kernel_name(text: str) -> str:
    names = re.findall(r"^\s*\.amdhsa_kernel\s+(\S+)", text, re.MULTILINE)
    if len(names) != 1:
        raise ListingError(f"expected a listing with one .amdhsa_kernel directive, found {len(names)}: {names}")
    return str(names[0])


def _metadata(text: str, name: str) -> dict[str, Any]:
    match = re.search(r"\.amdgpu_metadata\s*\n---\n(.*?)\n\.\.\.\n", text, re.DOTALL)
    if match is None:
        raise ListingError(f"kernel {name}: the listing has no .amdgpu_metadata section; assemble it with one")
    document = yaml.load(match.group(1), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for kernel in document["amdhsa.kernels"]:
        if kernel[".name"] == name:
            return dict(kernel)
    raise ListingError(f"kernel {name}: the amdhsa.kernels metadata of the listing has no entry for it")


def _directive(listing: Listing, code: str) -> None:
    key, _, value = code.partition(" ")
    # Symbolic values (the kernel's own name) are skipped.
    with contextlib.suppress(ValueError):
        listing.directives[key.removeprefix(".amdhsa_")] = int(value, 0)


def _known(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Drop the frames for which the compiler gives line 0."""
    return tuple(frame for frame in frames if frame.line)


def _instruction(code: str, index: int, line: int, frames: tuple[Frame, ...]) -> Instruction:
    return Instruction(index, line, code, *_split(code), frames)


@functools.lru_cache(maxsize=1 << 16)  # most instructions of a kernel are in other kernels too
def _split(code: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Split ``global_store_dword v0, v[2:3], off offset:16 sc0`` into mnemonic, operands and modifiers."""
    mnemonic, _, rest = code.partition(" ") if " " in code else code.partition("\t")
    mnemonic, _, tail = mnemonic.partition("\t")
    rest = (tail + " " + rest).strip() if tail else rest.strip()
    operands: list[str] = []
    modifiers: dict[str, str] = {}
    for part in _commas(rest):
        words = re.findall(r"[^\s\[\(]+(?:\[[^\]]*\]|\([^)]*\))?[^\s]*|\[[^\]]*\]", part)
        kept: list[str] = []
        for word in words:
            match = _MODIFIER.match(word)
            # buffer_wbl2 and buffer_inv have modifiers and no operands.
            if match and (kept or operands or word in ("sc0", "sc1", "nt")):
                modifiers[match.group("name")] = match.group("value") or ""
            else:
                kept.append(word)
        if kept:
            operands.append(" ".join(kept))
    return canonical(mnemonic), tuple(operands), modifiers


def _commas(text: str) -> list[str]:
    """Split at the commas outside brackets and parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]
