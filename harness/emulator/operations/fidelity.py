"""Fidelity of the result of each opcode: exact, approximate with a bound, or modelled.

``exact``        the bits of the hardware, but for sign and payload of a NaN that arithmetic creates
``approximate``  the correctly rounded value, of which the hardware's differs by up to the bound
``modelled``     follows a description other than the manual, or stands for something that the emulator does not have
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

GRADES = ("exact", "approximate", "modelled")


@dataclass(frozen=True)
class Fidelity:
    """``grade`` is one of GRADES; ``bound`` is the largest difference, or what is modelled; ``source`` states why."""

    grade: str
    bound: str
    source: str


_MANUAL = "CDNA3 ISA"
_ROUNDED = "the emulator rounds the float64 result once"
_MEASURED = "measured on an MI300X, arXiv:2511.10909"
_RULES: tuple[tuple[str, Fidelity], ...] = (
    (r"v_(rcp|rsq|sqrt)_f64", Fidelity("approximate", "2**29 ulp", _MANUAL)),
    (r"v_(sin|cos)_f(16|32)", Fidelity("approximate", "not stated by the manual", _ROUNDED)),
    (r"v_(exp|log|rcp|rsq|sqrt)_(legacy_|iflag_)?f(16|32)", Fidelity("approximate", "1 ulp", _MANUAL)),
    (r"v_div_(scale|fmas)_f(32|64)", Fidelity("modelled", "scaling of steps; quotients are exact", _MANUAL)),
    (r"v_s?mf(ma|mac)_i32_", Fidelity("exact", "", _MANUAL)),
    (r"v_smfmac_", Fidelity("modelled", "order and rounding of additions", "assumed to be that of v_mfma")),
    (r"v_mfma_", Fidelity("modelled", "order and rounding of additions", _MEASURED)),
    (r"v_dot2c?_(f32_f16|f32_bf16)", Fidelity("modelled", "order and rounding of additions", _MANUAL)),
    (r"(global|buffer|flat|ds)_\w*(add|pk_add)_(rtn_)?(b?f16|f32|f64)",
     Fidelity("modelled", "order of the lanes' additions", "the hardware's order is not determined")),
    (r"v_(mad|mac|madmk|madak)_(legacy_)?f16", Fidelity("modelled", "two roundings", "not stated by the manual")),
    (r"s_dcache_discard", Fidelity("modelled", "no scalar cache", "nothing is discarded")),
    (r"t?buffer_(load|store)_format_", Fidelity("modelled", "rounding of conversions", "not stated by the manual")),
    (r"ds_(append|consume)", Fidelity("modelled", "the address is M0 plus the offset", "LLVM; the manual omits M0")),
    (r"s_mem(real)?time", Fidelity("modelled", "clocks of the host", "no model of time")),
    (r"s_getreg_b32", Fidelity("modelled", "places of wavefronts", "no compute units")),
    (r"buffer_(wbl2|inv)", Fidelity("modelled", "no caches but in mode weak", "LLVM AMDGPUUsage, memory model gfx942")),
)  # fmt: skip
_EXACT = Fidelity("exact", "", _MANUAL)


@lru_cache(maxsize=4096)
def fidelity(opcode: str, arch: str) -> Fidelity:
    """Return the fidelity of an opcode, without the suffix of its encoding, on ``arch``."""
    for pattern, rule in _RULES:
        if re.match(pattern, opcode):
            if rule.source == _MEASURED and arch != "gfx942":
                return Fidelity(rule.grade, rule.bound, "assumed to be that of gfx942")
            return rule
    return _EXACT
