"""IEEE 754-2019 minimum and maximum of three: a NaN among them is the result, and -0 is below +0.

Source: CDNA4 ISA, VOP3 (V_MINIMUM3_F32, V_MAXIMUM3_F32) and VOP3P.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.operations.table import vector


def _extreme(pick, of_zeros):
    """Return a minimum or maximum: ``pick`` is np.minimum or np.maximum; ``of_zeros`` joins the signs of zeros."""

    def two(a, b):
        word = np.uint16 if a.dtype == np.float16 else np.uint32
        equal = of_zeros(a.view(word), b.view(word)).view(a.dtype)
        return np.where(a == b, equal, pick(a, b))

    return lambda a, b, c: two(two(a, b), c)


_minimum3, _maximum3 = _extreme(np.minimum, np.bitwise_or), _extreme(np.maximum, np.bitwise_and)
vector("v_minimum3_f32@gfx950", "f32 = f32 f32 f32")(_minimum3)
vector("v_maximum3_f32@gfx950", "f32 = f32 f32 f32")(_maximum3)
vector("v_pk_minimum3_f16@gfx950", "f16 = f16 f16 f16", packed=True)(_minimum3)
vector("v_pk_maximum3_f16@gfx950", "f16 = f16 f16 f16", packed=True)(_maximum3)
