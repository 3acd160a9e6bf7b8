"""Meaning of each ALU opcode, on Python integers: ``SEMANTICS[mnemonic]``.

Written from the ISA manual, independently of the tables of ``harness.emulator.operations``; the tests compare the two.

A function takes raw bit patterns (unsigned), a mask or SCC as a bool, and returns a pattern, or a tuple of them.
``types`` are those of the operands, as in the instruction, results first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Semantics:
    function: Callable
    results: tuple[str, ...]
    sources: tuple[str, ...]
    ulps: int = 0  # how far a float result may be off: 0 is exact, except for the payload of a NaN
    exact_nan: bool = False
    keeps_high: bool = False


SEMANTICS: dict[str, Semantics] = {}
BITS = {"u16": 16, "i16": 16, "f16": 16, "u32": 32, "i32": 32, "f32": 32, "u64": 64, "i64": 64, "f64": 64}


def means(names: str, types: str, function: Callable | None = None, **options):
    """Record the meaning of the blank-separated ``names``; as a decorator, or with the function as argument."""
    results, _, sources = types.partition("=")

    def record(function: Callable) -> Callable:
        for name in names.split():
            assert name not in SEMANTICS, name
            SEMANTICS[name] = Semantics(function, tuple(results.split()), tuple(sources.split()), **options)
        return function

    return record(function) if function else record


def signed(word: int, bits: int = 32) -> int:
    word &= (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) else word


def wrap(value: int, bits: int = 32) -> int:
    return value & ((1 << bits) - 1)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
