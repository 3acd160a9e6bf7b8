"""Forms of matrix products: vector code for finite operands of f16, bf16 and xf32.

The arithmetic is that of ``native.mfma.fused_sum``, bit for bit. It is called for all else: infinities, NaNs,
exponents so large or so small that a product of two elements is not a normal float32, and shapes whose rows are no
whole host vectors. A row of D is computed at once, 16 columns to a host vector: by ``near_products`` if all elements
are near 1, else by ``far_products``.
"""

from __future__ import annotations

import hashlib

import numpy as np
from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.operations.table import Native
from harness.emulator.program.compiled.far_products import FarProducts
from harness.emulator.program.compiled.near_products import NearProducts
from harness.emulator.program.compiled.vectors import COLUMNS, FUNCTION, VectorCode

_F16, _BF16, _XF32 = (16, 5), (16, 8), (32, 8)
"""Bits of an element and of its exponent."""
WINDOW = 128
"""Bytes of registers from which elements are unpacked at once."""


class ProductForm:
    """Products that differ in their registers only. ``name`` identifies the form."""

    def __init__(self, element: tuple[int, int], group: int, shape: tuple[int, ...], maps: list[np.ndarray]) -> None:
        self.element, self.group, self.shape, self.maps = element, group, shape, maps
        parts = (element, group, shape, [m.tobytes() for m in maps])
        self.name = "product_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def emit(self) -> ir.Module:
        """Return a module with the form's function."""
        module = ir.Module()
        _emit(VectorCode(ir.Function(module, FUNCTION, self.name)), self)
        return module


def product_form(native: Native) -> ProductForm | None:
    """Return the form of a matrix product; None if it has only the general function."""
    if native.function.kind != "product":
        return None
    registers, shape, (a_at, b_at, d_at, forms) = native.parameters[:4], native.parameters[4:8], native.keeps
    if len(forms) != 12 or (forms[:6] != forms[6:]).any():
        return None
    element = int(forms[0]), int(forms[2])
    d, a, b, c = registers
    words = len(d_at) // 64
    overlap = c >= 0 and c != d and c < d + words and d < c + words
    usual = not any(r & 1 for r in (d, a, b, max(c, 0))) and not overlap
    if element not in (_F16, _BF16, _XF32) or shape[2] % COLUMNS or not usual or not _in_rows(shape, d_at):
        return None
    form = ProductForm(element, min(int(native.parameters[16]), shape[3]), shape, [a_at, b_at, d_at])
    return form if stored_order(form) else None


def _in_rows(shape: tuple[int, ...], d_at: np.ndarray) -> bool:
    """Return True if the columns of each row are successive lanes of one register."""
    rows = d_at.reshape(-1, shape[2], 3)
    steps = np.arange(shape[2])
    return bool((rows[:, :, 0] == rows[:, :1, 0]).all() and (rows[:, :, 1] == rows[:, :1, 1] + steps).all())


def _places(at: np.ndarray, bits: int) -> np.ndarray:
    """Return the places of elements from the first register of an operand on, in elements."""
    offsets = (at[:, 0] >> 1) * record.PAIR_BYTES + at[:, 1] * 8 + (at[:, 0] & 1) * 4 + at[:, 2] // 8
    places: np.ndarray = offsets * 8 // bits
    return places


def stored_order(form: ProductForm) -> tuple[np.ndarray, int, list[int]] | None:
    """Return the order in which the elements of A are stored, and where element (row, k) is then, as
    ``row * step + of_k[k]``: the order of their places in the registers, or by row. None if elements that are unpacked
    together are not near each other in the registers."""
    blocks, rows, _, depth = form.shape
    places = _places(form.maps[0], form.element[0])
    if not _are_near(_places(form.maps[1], form.element[0]), form):
        return None
    for order in (np.argsort(places, kind="stable"), np.arange(len(places))):
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        table = rank.reshape(blocks * rows, depth)
        step = int(table[1, 0] - table[0, 0])
        regular = (table == table[0] + step * np.arange(blocks * rows)[:, None]).all()
        if regular and _are_near(places[order], form):
            return order, step, table[0].tolist()
    return None


def _are_near(places: np.ndarray, form: ProductForm) -> bool:
    window = 8 * WINDOW // form.element[0]
    return bool((np.ptp(places.reshape(-1, COLUMNS), axis=1) < window).all())


def _emit(code: VectorCode, form: ProductForm) -> None:
    stored = stored_order(form)
    assert stored is not None  # sanity check
    a_places, b_places = (_places(at, form.element[0]) for at in (form.maps[0][stored[0]], form.maps[1]))
    near_products = NearProducts(code, form)
    addend = near_products.addend()
    code.slow_if(near_products.special(addend))
    near, far = code.block("near"), code.slow if form.element == _F16 else code.block("far")
    code.b.cbranch(near_products.near, near, far)
    code.b.position_at_end(near)
    near_products.emit(addend, far)
    code.b.ret(code.i64(0))
    if far is not code.slow:
        code.b.position_at_end(far)
        FarProducts(code, form, stored).emit(a_places, b_places, addend)
        code.b.ret(code.i64(0))
