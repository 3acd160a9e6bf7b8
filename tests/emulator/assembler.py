"""LLVM's assembler and its backend for AMD GPUs, which are in Triton's wheel."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from triton._C import libtriton
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


@cache
def mnemonics(arch: str) -> tuple[str, ...]:
    """Return all mnemonics that the assembler knows for ``arch``: those that it does not refuse by name.

    LLVM's table of mnemonics is in the library, each with its length before it, in alphabetical order.
    """
    name = re.compile(rb"[a-z0-9_]+")
    with Path(libtriton.__file__).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        known = b"v_mfma_f32_32x32x1f32"
        start = data.find(bytes([len(known)]) + known)
        assert start > 0, "LLVM's table of mnemonics was not found"
        while before := [
            n for n in range(1, 64) if data[start - n - 1] == n and name.fullmatch(data[start - n : start])
        ]:
            start -= before[0] + 1
        names = []
        while (size := data[start]) and name.fullmatch(data[start + 1 : start + 1 + size]):
            names.append(data[start + 1 : start + 1 + size].decode())
            start += 1 + size
    # One line each, with operands that exist nowhere: the assembler names those that it does not have on this GPU.
    lines = "".join(f"\t{each} v999999999\n" for each in names)
    messages = _messages(f'\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\nprobe:\n{lines}', arch)
    refused = {
        int(line)
        for line, why in re.findall(r":(\d+):\d+: error: (.*)", messages)
        if "not supported on this GPU" in why or "invalid instruction" in why
    }
    return tuple(each for number, each in enumerate(names, 3) if number not in refused)


def _messages(text: str, arch: str) -> str:
    """Assemble, and return what LLVM writes to the descriptor of stderr."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with contextlib.suppress(RuntimeError):
                _assemble(text, arch)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        file.seek(0)
        return file.read().decode()


def compiled(ir: str, arch: str) -> str:
    """Return the listing that LLVM's backend makes of a module in LLVM's language."""
    llvm.init_targets()
    arguments = (ir, "amdgcn-amd-amdhsa", arch, "", [], False, False)
    try:
        return str(llvm.translate_to_asm(*arguments, False))
    except TypeError:  # older versions of Triton have one argument less
        return str(llvm.translate_to_asm(*arguments))


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
