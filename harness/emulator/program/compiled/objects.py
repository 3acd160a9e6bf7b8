"""Compilation of IR to machine code for this processor, and the cache of machine code on disk."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from triton import knobs

from harness import kept

_EMULATOR = Path(__file__).resolve().parents[2]
# The packages that decide what a function does.
_SOURCES = [_EMULATOR / name for name in ("native", "wavefront", "operations", "program")]


class _Host:
    """LLVM, initialised for this processor; one per process."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.cpu, self.features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
        target = llvm.Target.from_default_triple()
        self.machine = target.create_target_machine(cpu=self.cpu, features=self.features.flatten(), opt=1, jit=True)
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)


@lru_cache(maxsize=1)
def host() -> Any:
    return _Host()


def can_compile() -> bool:
    """Return False on an x86 processor without float16 conversions (all since 2013 have them).

    LLVM would call library functions for them, which are not available here.
    """
    features = host().features
    return "f16c" not in features or bool(features["f16c"])


def compile_module(module: ir.Module) -> bytes:
    """Return an object file with the module's functions.

    No optimisation passes are run: the emitted code has no redundant loads, stores or values, instruction selection
    folds the rest, and on vectors of 64 elements the passes take several times as long as everything else.
    """
    code: bytes = host().machine.emit_object(llvm.parse_assembly(str(module)))
    return code


def load(codes: dict[str, bytes]) -> dict[str, int]:
    """Load object files, each with one function, by the name of the function; return the functions' addresses."""
    for code in codes.values():
        host().engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    if codes:
        host().engine.finalize_object()
    return {name: host().engine.get_function_address(name) for name in codes}


def load_functions(code: bytes, names: list[str]) -> list[int]:
    """Load an object file with several functions; return their addresses."""
    host().engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    host().engine.finalize_object()
    return [host().engine.get_function_address(name) for name in names]


@lru_cache(maxsize=1)
def version() -> str:
    """Return a hash of the inputs of compilation besides the listing: emulator source, NumPy, LLVM, the processor."""
    parts = (np.__version__, llvm.llvm_version_info, host().cpu, host().features.flatten())
    return hashlib.sha256(repr(([kept.sources_hash(folder) for folder in _SOURCES], *parts)).encode()).hexdigest()


def _file(name: str) -> Path:
    return kept.file_in(Path(knobs.cache.dir), "machine-code", name)


def read(name: str) -> tuple[Any, bytes] | None:
    """Return the header and the object code that ``write`` stored in the cache under this name.

    None if the file is missing, or its checksum is wrong.
    """
    content = kept.read(_file(name))
    if content is None:
        return None
    header, _, code = content.partition(b"\n")
    return json.loads(header), code


def write(name: str, header: Any, code: bytes) -> None:
    """Store code under a name. Other processes see the whole file or none; a failure to write it is ignored."""
    kept.write(_file(name), json.dumps(header).encode() + b"\n" + code)
