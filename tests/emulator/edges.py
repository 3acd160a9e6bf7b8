"""Operand values at the edges of each type, and their combinations."""

import itertools
import random

from tests.emulator.ieee import FORMATS


def integers(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    values = [
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        12,
        15,
        16,
        24,
        31,
        32,
        33,
        63,
        64,
        0x80,
        0xFF,
        0x7FFF,
        0x8000,
        0xFFFF,
        top - 1,
        top,
        top + 1,
        2 * top - 1,
        2 * top - 2,
        0x5555555555555555,
        0x00FF00FF12345678,
        0x070605040C080901,
        0x0706030205040100,
        0x7FFFFF,
        0x800000,
    ]
    return list(dict.fromkeys(v & (2 * top - 1) for v in values))


def floats(kind: str) -> list[int]:
    f = FORMATS[kind]
    one = f.bias << f.mantissa
    some = random.Random(kind)
    magnitudes = [
        0,
        1,
        f.quiet,
        (1 << f.mantissa) - 1,
        1 << f.mantissa,
        one,
        one + 1,
        one - 1,
        one | f.quiet,
        one + (1 << f.mantissa),
        f.inf - 1,
        f.inf,
        f.nan,
        f.inf | 1,
        f.nan | 5,
        one + (7 << f.mantissa) + 3,
        one - (3 << f.mantissa),
    ]
    magnitudes += [some.randrange(f.inf) for _ in range(4)]
    for exponent in (14, 15, 16, 30, 31, 32):
        word = one + (exponent << f.mantissa)
        if word < f.inf:
            magnitudes += [word, word - 1]
    values = [m | s for m in magnitudes for s in (0, f.sign)]
    return list(dict.fromkeys(values))


def of(kind: str) -> list:
    if kind in ("mask", "vcc", "scc"):
        return [False, True]
    return floats(kind) if kind in FORMATS else integers(16 if kind == "imm" else int(kind[1:]))


def combinations(kinds: list[str], seed: str, limit: int = 512) -> list[tuple]:
    """Return every combination of edge values, or ``limit`` of them drawn at random.

    The random ones include equal operands and some random words.
    """
    sets = [of(k) for k in kinds]
    some = random.Random(seed)
    count = 1
    for values in sets:
        count *= len(values)
    if count <= limit:
        chosen = list(itertools.product(*sets))
    else:
        chosen = [tuple(some.choice(values) for values in sets) for _ in range(limit - 64)]
    if len(set(kinds)) == 1:
        chosen += [(v,) * len(kinds) for v in sets[0]]
    words = [k for k in kinds if k not in ("mask", "vcc", "scc", "imm")]
    if len(words) == len(kinds):
        chosen += [tuple(some.getrandbits(int(k[1:])) for k in kinds) for _ in range(64)]
    return chosen
