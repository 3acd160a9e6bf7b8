"""LLVM's assembler and its backend for AMD GPUs, which are in Triton's wheel."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from functools import cache

from triton._C.libtriton import llvm
from triton.backends.amd import compiler


def encoding(line: str, arch: str = "gfx942") -> bytes | None:
    """Return the encoding of one instruction, None if the assembler refuses it."""
    text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\nprobe:\n\t{line}\n'
    try:
        with _without_messages():
            return _code(_assemble(text, arch))
    except RuntimeError:
        return None


@cache
def available() -> bool:
    """Return whether this version of Triton has an assembler that a test can call."""
    return hasattr(compiler, "assemble_amdgcn")


def compiled(ir: str, arch: str) -> str:
    """Return the listing that LLVM's backend makes of a module in LLVM's language."""
    llvm.init_targets()
    # The last argument is that of newer versions of Triton.
    return str(llvm.translate_to_asm(ir, "amdgcn-amd-amdhsa", arch, "", [], False, False, False))


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Discard what is written to the descriptor of stderr: LLVM prints there what it refuses."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _assemble(text: str, arch: str) -> bytes:
    return bytes(compiler.assemble_amdgcn(text, arch, ""))


def _code(elf: bytes) -> bytes:
    """Return the section .text of an ELF file."""
    start = struct.unpack_from("<Q", elf, 40)[0]
    count, strings = struct.unpack_from("<HH", elf, 60)
    sections = [struct.unpack_from("<IIQQQQ", elf, start + 64 * n) for n in range(count)]
    names = elf[sections[strings][4] :]
    for name, _, _, _, offset, size in sections:
        if names[name : names.index(b"\0", name)] == b".text":
            return elf[offset : offset + size]
    raise ValueError("the object file has no section .text")
