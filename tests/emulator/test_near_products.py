"""Products of elements near 1, with addends and sums chosen for each kind of rounding: the bits of the careful path.

The careful path, ``mfma._careful``, computes one element of a product after the other, each case by itself.
"""

import numpy as np
import pytest

from harness.emulator.native import mfma, record
from harness.emulator.program.compiled import near_products
from harness.emulator.program.compiled.translation import Translator
from tests.emulator.test_products import CODES, GFX950, PAIRS, different, execute, numbers, plant, program

F16, BF16, XF32 = CODES[1], CODES[4], CODES[5]


def shaped(code, seed):
    """Return registers whose elements have few bits, so that sums cancel and have ties, and addends of all sizes."""
    some = np.random.default_rng(seed)
    element = code.split()[0].rsplit("_", 1)[1]
    registers = numbers(element, 6, some)
    lanes = 2 if element == "xf32" else 4
    exact = some.choice([1.0, -1.0, 1.5, -1.5, 2.0, -0.5, 1 + 2.0**-7], (PAIRS, 64, lanes)) * np.exp2(
        some.integers(-14, 4, (PAIRS, 64, lanes)) * some.integers(0, 2, (PAIRS, 64, lanes))
    )
    if element == "f16":
        words = exact.astype(np.float16).view(np.uint32)
    else:
        words = exact.astype(np.float32).view(np.uint32)
        words = words if element == "xf32" else (words >> 16).astype(np.uint16).view(np.uint32)
    exact_rows = some.random((PAIRS, 64, 1)) < 0.7
    registers = np.where(exact_rows, words, registers)
    size = np.exp2(some.integers(-20, 40, (19, 64, 2)))
    addends = some.choice([1.0, -1.0], (19, 64, 2)) * size
    near = some.random((19, 64, 2))
    addends = np.where(near < 0.6, addends * (1 + some.integers(-3, 4, (19, 64, 2)) * 2.0**-23), addends)
    addends = np.where(near > 0.8, addends * some.uniform(1, 2, (19, 64, 2)), addends)
    addends[some.random((19, 64, 2)) < 0.05] = 0
    registers[:19] = addends.astype(np.float32).view(np.uint32)
    return registers


def careful(code, registers):
    """Return the registers after the product, element by element; and the number of words that are not its results."""
    native = next(getattr(step, "native", None) for segment in program(code).segments for step in segment.steps)
    (d, a, b, c), (blocks, rows, columns, depth) = native.parameters[:4], native.parameters[4:8]
    a_at, b_at, d_at, forms = native.keeps
    form = tuple(int(x) for x in forms[:6])
    group = min(int(native.parameters[16]), depth)
    v = registers.reshape(PAIRS, 1, 64, 2)

    def fields(at, base):
        register = base + at[:, 0]
        words = v[register >> 1, 0, at[:, 1], register & 1] >> at[:, 2].astype(np.uint32)
        return words & np.uint32((1 << form[0]) - 1)

    parts = []
    for at, base, shape in ((a_at, a, (blocks, rows, depth)), (b_at, b, (blocks, depth, columns))):
        value, exponent = np.zeros(len(at), np.float32), np.zeros(len(at), np.int32)
        mfma._unpack(fields(at, base).astype(np.uint32), form, value, exponent)
        parts += [value.reshape(shape), exponent.reshape(shape)]
    x, x_exponent, y, y_exponent = parts
    place = c + d_at[:, 0]
    out = v[place >> 1, 0, d_at[:, 1], place & 1].view(np.float32).reshape(blocks, rows, columns).copy()
    for block, i, j in np.ndindex(out.shape):
        for first in range(0, depth, group):
            out[block, i, j] = mfma._careful(
                x[block], x_exponent[block], y[block], y_exponent[block], i, j, first, group, 1, 0, out[block, i, j]
            )
    result = v.copy()
    place = d + d_at[:, 0]
    result[place >> 1, 0, d_at[:, 1], place & 1] = out.reshape(-1).view(np.uint32)
    return result.reshape(-1)


@pytest.mark.parametrize("code", [F16, BF16, XF32, GFX950[0]])
@pytest.mark.parametrize("seed", range(3))
def test_the_bits_of_the_careful_path(code, seed):
    registers = shaped(code, seed)
    translated = Translator(program(code)).finish()
    row = translated.code[1].copy()
    assert int(row[2 + record.GENERAL]) not in (0, int(row[1]))
    with np.errstate(all="ignore"):
        assert (execute(int(row[1]), row[2:], registers) == careful(code, registers)).all()


@pytest.mark.parametrize("code", CODES + GFX950)
@pytest.mark.parametrize("seed", range(10, 30))
def test_the_bits_of_the_general_function(code, seed):
    assert different(code, shaped(code, seed)) == 0


@pytest.mark.parametrize("code", [F16, BF16, XF32])
def test_a_host_that_rounds_down_before_it_converts(monkeypatch, code):
    plant(monkeypatch, "converts_down", lambda: False)
    assert all(different(code, shaped(code, seed)) == 0 for seed in range(10, 15))


@pytest.mark.parametrize("exponent", [-149, -130, -100])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_tiny_addend_next_to_great_products(exponent, sign):
    registers = great_products(exponent, sign)
    assert different(F16, registers) == 0


def great_products(exponent, sign):
    """Return operands of which one product is 2**28 and the others of its group vanish, and addends of one exponent."""
    elements = np.full((PAIRS, 64, 4), 2.0**-10, np.float16)
    elements[:, :16, 0] = 2.0**14
    registers = elements.view(np.uint32)
    registers[:8] = np.array(sign * 2.0**exponent, np.float32).view(np.uint32)
    return registers


#: The host's own instruction rounds to the nearest, or else LLVM's function does.
OF_THE_HOST = ("_DOWN", 8) if near_products.converts_down() else ("_FLOOR", "rint")


@pytest.mark.parametrize(
    ("name", "value", "registers"),
    [
        ("_REST", 0, [lambda seed=seed: shaped(F16, seed) for seed in range(10, 30)]),
        ("_ROOM", 31, [lambda seed=seed: shaped(F16, seed) for seed in range(10, 30)]),
        (*OF_THE_HOST, [lambda seed=seed: shaped(F16, seed) for seed in range(10, 30)]),
        ("GREATEST", 40, [lambda: great_products(-149, -1)]),
    ],
)
def test_a_wrong_rounding_is_found(monkeypatch, name, value, registers):
    """Of the bits below the unit of a large addend's sum, of an addend too large for an int32, and of tiny ones."""
    plant(monkeypatch, name, value)
    assert any(different(F16, make()) for make in registers)
