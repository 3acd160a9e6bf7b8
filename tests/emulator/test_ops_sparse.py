"""Every SMFMAC opcode against the tables of the ISA manuals: positions of elements, index sets, rounding of results."""

import random
import re

import numpy as np
import pytest

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations import TABLE
from tests.emulator import matrix_reference as reference
from tests.emulator.covering import covers
from tests.emulator.single import execute
from tests.emulator.test_ops_matrix import drawer, number, pattern, registers

NAMES = sorted(name for name in TABLE if name.startswith("v_smfmac_"))
ARCHS = ("gfx942", "gfx950")
CASES = [
    pytest.param(name.partition("@")[0], arch, id=f"{name} {arch}")
    for name in NAMES
    for arch in ([name.partition("@")[2]] if "@" in name else ARCHS)
]
D, A, B, INDEX = 0, 16, 24, 40


class Sparse:
    """Operands of one wavefront. ``stored``: A by (i, c); ``at``: the k of each; ``b`` by (k, j); ``c`` by (i, j)."""

    def __init__(self, name, arch, draw, seed):
        match = re.fullmatch(r"v_smfmac_(f32|i32)_(\d+)x(\d+)x(\d+)_(\w+)", name)
        self.d, types = match[1], match[5]
        self.m, self.n, self.k = (int(match[i]) for i in (2, 3, 4))
        a_type, _, b_type = types.partition("_")
        # A dense product over the stored elements: the arithmetic of the model.
        self.op = reference.Mfma(self.d, self.m, self.n, self.k // 2, 1, a_type, b_type or a_type)
        self.name, self.arch = name, arch
        self.bits = reference.width(a_type, arch)
        some, word = random.Random(seed), draw(self.op, arch, seed)
        rows, columns = range(self.m), range(self.n)
        self.stored = {(i, c): word("a", 0) for i in rows for c in range(self.k // 2)}
        self.b = {(k, j): word("b", 0) for k in range(self.k) for j in columns}
        self.c = {(i, j): word("c", 0) for i in rows for j in columns}
        self.at = {}
        for i in rows:
            for group in range(self.k // 4):
                first, second = sorted(some.sample(range(4), 2))
                self.at[i, 2 * group], self.at[i, 2 * group + 1] = 4 * group + first, 4 * group + second

    def k_of(self, lane, n):
        """Return the k of the n-th element of a lane of B: tables "Matrix B Layout" of the CDNA4 ISA manual."""
        row = lane // self.n  # of lanes with other k
        tables = {  # the first k of each run of a lane, for the first row of lanes; the distance to the next row
            (16, 32, 16): ([0], 8), (32, 16, 16): ([0], 8), (16, 64, 8): ([0], 16), (32, 32, 8): ([0], 16),
            (16, 64, 16): ([0, 32], 8), (32, 32, 16): ([0, 16], 8),
            (16, 128, 8): ([0, 64], 16), (32, 64, 8): ([0, 32], 16),
        }  # fmt: skip
        starts, run = tables[self.n, self.k, self.bits]
        return starts[n // run] + run * row + n % run

    def packed(self, index_set, rest=0):
        """Return the registers; other index sets than ``index_set`` have the bits of ``rest``."""
        a_words = [[0] * 64 for _ in range(self.m * self.k // 2 * self.bits // 2048)]
        b_words = [[0] * 64 for _ in range(self.n * self.k * self.bits // 2048)]
        c_words = [[0] * 64 for _ in range(self.m * self.n // 64)]
        index = [rest] * 64
        per, stored = 32 // self.bits, self.m * self.k // 128
        for lane in range(64):
            for n in range(stored):
                c = stored * (lane // self.m) + n
                a_words[n // per][lane] |= self.stored[lane % self.m, c] << n % per * self.bits
                bit = index_set * 2 * stored + 2 * n
                index[lane] = index[lane] & ~(3 << bit) | self.at[lane % self.m, c] % 4 << bit
            for n in range(2 * stored):
                b_words[n // per][lane] |= self.b[self.k_of(lane, n), lane % self.n] << n % per * self.bits
            for n in range(len(c_words)):
                c_words[n][lane] = self.c[reference.output_of(self.op, lane, n)[1:]]
        return {INDEX: index, **{first + i: word for first, words in ((D, c_words), (A, a_words), (B, b_words))
                                 for i, word in enumerate(words)}}  # fmt: skip

    def run(self, modifiers="", index_set=0, rest=0, **options):
        """Return D by (i, j)."""
        v = self.packed(index_set, rest)
        sides = {first: sum(first <= r < end for r in v) for first, end in ((D, A), (A, B), (B, INDEX))}
        text = ", ".join(registers(first, sides[first]) for first in (D, A, B)) + f", v{INDEX}{modifiers}"
        result = execute(f"{self.name} {text}", v=v, arch=self.arch, **options)
        words = [result.v(D + n) for n in range(sides[D])]
        return {
            reference.output_of(self.op, lane, n)[1:]: words[n][lane] for n in range(sides[D]) for lane in range(64)
        }

    def differing(self, got):
        """Return the places where small whole numbers give another result than NumPy's product with the dense A."""

        def table(kind):
            return {pattern(kind, self.arch, n): n for n in range(-4, 5)}

        dense, b, c = (np.zeros(shape, np.int64) for shape in ((self.m, self.k), (self.k, self.n), (self.m, self.n)))
        for (i, column), word in self.stored.items():
            dense[i, self.at[i, column]] = table(self.op.a)[word]
        for place, word in self.b.items():
            b[place] = table(self.op.b)[word]
        for place, word in self.c.items():
            c[place] = table(self.d)[word]
        wanted = dense @ b + c
        return [place for place, word in got.items() if number(self.d, word) != wanted[place]]


def small(op, arch, seed):
    """Draw small whole numbers, as patterns of each type: every sum is exact."""
    some = random.Random(seed)
    kinds = {"a": op.a, "b": op.b, "c": op.d}
    return lambda side, wave: pattern(kinds[side], arch, some.randrange(-4, 5))


def sets(case):
    """Return the number of index sets in a register: the manual's "one of four 8-bit sets", and so on."""
    per_lane = 2 * case.m * case.k // 128
    return 32 // per_lane


@pytest.mark.long
@covers(*NAMES)
@pytest.mark.parametrize(("name", "arch"), CASES)
def test_every_element_lies_where_the_manual_says(name, arch):
    """A wrong index set gives another product, so a test that used the wrong one would fail."""
    case = Sparse(name, arch, small, name)
    for chosen in range(sets(case)):
        rest = 0xE4E4E4E4
        assert not case.differing(case.run(f" abid:{chosen}" if chosen else "", chosen, rest))
        if chosen:
            assert case.differing(case.run(f" cbsz:1 abid:{chosen}", chosen, rest))
            assert not case.differing(case.run(f" cbsz:1 abid:{chosen}", 0, rest))


@pytest.mark.long
@pytest.mark.parametrize(("name", "arch"), CASES)
def test_results_are_rounded_as_those_of_the_dense_products(name, arch):
    """A sample of results of arbitrary values, NaN and infinities among them."""
    for wave in range(4):
        case = Sparse(
            name, arch, lambda op, arch, seed, wave=wave: _of_wave(drawer(op, arch, seed), wave), f"{name}{wave}"
        )
        got = case.run()
        for i, j in random.Random(wave).sample(sorted(got), 24):
            a = [case.stored[i, c] for c in range(case.k // 2)]
            b = [case.b[case.at[i, c], j] for c in range(case.k // 2)]
            wanted = reference.dot(case.op, arch, a, b, case.c[i, j])
            assert got[i, j] == wanted, f"{name} {arch}, {i, j}: {got[i, j]:#x}, not {wanted:#x}"


def _of_wave(draw, wave):
    return lambda side, _: draw(side, wave)


def test_elements_that_are_not_selected_do_not_count():
    """An infinity in B that no index selects leaves no NaN, though a dense product with 0 would."""
    case = Sparse("v_smfmac_f32_16x16x32_f16", "gfx942", small, "inf")
    case.at = {(i, c): 4 * (c // 2) + c % 2 for i, c in case.at}
    infinite = {place: 0x7C00 if place[0] % 4 > 1 else word for place, word in case.b.items()}
    before = case.run()
    case.b = infinite
    assert case.run() == before


def test_exec_is_ignored_and_d_may_be_accumulation_registers():
    case = Sparse("v_smfmac_i32_32x32x32_i8", "gfx942", small, "exec")
    assert not case.differing(case.run(exec=0))
    v = case.packed(0)
    text = ["v_smfmac_i32_32x32x32_i8 a[0:15], v[16:17], v[24:27], v40"]
    moves = [f"v_accvgpr_write_b32 a{n}, v{n}" for n in range(16)]
    back = [f"v_accvgpr_read_b32 v{n}, a{n}" for n in range(16)]
    result = execute(*moves, *text, *back, v=v)
    words = [result.v(n) for n in range(16)]
    assert not case.differing(
        {reference.output_of(case.op, lane, n)[1:]: words[n][lane] for n in range(16) for lane in range(64)}
    )


@pytest.mark.parametrize(
    ("text", "arch", "why"),
    [
        ("v_smfmac_f32_16x16x64_f16 v[0:3], v[4:7], v[8:15], v16", "gfx942", "not implemented"),
        ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10 blgp:1", "gfx942", "blgp"),
        ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:7], v[6:9], v10", "gfx942", "not a range of 2 vector registers"),
        ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], 0", "gfx942", "not a range of 1 vector registers"),
    ],
)
def test_what_does_not_exist_is_refused(text, arch, why):
    with pytest.raises(UnimplementedInstruction, match=why):
        execute(text, arch=arch)
