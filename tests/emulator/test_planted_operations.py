"""Planted faults in operations that the tests of opcodes must reject: each fault fails the test of its opcode."""

from dataclasses import replace

import numpy as np
import pytest

from harness.emulator import MemoryFault
from harness.emulator.operations import formats, lds_atomics, relative, sparse
from harness.emulator.operations.access import LdsAccess, ScalarAccess, TypedAccess
from tests.emulator import (
    single,
    test_ops_flat,
    test_ops_lds_exchanges,
    test_ops_relative,
    test_ops_scalar_memory,
    test_ops_sparse,
    test_ops_typed,
)


def layouts(patch):
    patch.setitem(formats.LAYOUTS, 9, (2, 10, 10, 10))


def normalized(patch):
    """Divide by 2**bits instead of 2**bits - 1."""
    own = formats.decode
    patch.setattr(formats, "decode", lambda f, bits, kind, halves: own(f, bits + (kind == formats.UNORM), kind, halves))


def selected(patch):
    patch.setattr(formats, "one", lambda kind, halves: 0)


def truncated(patch):
    patch.setattr(formats.np, "rint", np.floor)


def unlimited(patch):
    patch.setattr(formats.np, "clip", lambda value, low, high: value)


def stored(patch):
    own = TypedAccess.element
    patch.setattr(TypedAccess, "element", lambda self, words: own(self, words[..., ::-1]))


def misplaced(patch):
    own = ScalarAccess.addresses
    patch.setattr(ScalarAccess, "addresses", lambda self, wf: own(self, wf) + np.uint64(4))


def counted(patch):
    """Let each lane access a counter of its own."""
    own = LdsAccess.addresses
    patch.setattr(
        LdsAccess,
        "addresses",
        lambda self, wf, part=0: own(self, wf, part) + 4 * np.arange(64) * self.counts + 4 * (self.areg >= 0),
    )


def swapped(patch):
    """Let a flat compare-and-swap on the share take its new value for the expected one."""
    own = lds_atomics.step_of

    def step_of(access):
        if access.second >= 0:
            ((offset, data),) = access.parts
            access = replace(access, parts=((offset, access.second),), second=data)
        return own(access)

    patch.setattr(lds_atomics, "step_of", step_of)


def index_sets(patch):
    own = sparse.index_map
    patch.setattr(sparse, "index_map", lambda shape, chosen: own(shape, 0))


def halves_of_b(patch):
    """Let a lane hold successive k of B, where gfx950 has two runs."""
    patch.setattr(sparse, "dense_map", sparse.b_map)


def last_register(patch):
    patch.setattr(relative, "LAST", 127)


sparse_product = test_ops_sparse.test_every_element_lies_where_the_manual_says
FAULTS = [
    (layouts, lambda: test_ops_typed.test_loads_convert("2_10_10_10", "UINT")),
    (normalized, lambda: test_ops_typed.test_loads_convert("8_8", "UNORM")),
    (selected, lambda: test_ops_typed.test_loads_convert("16", "SINT")),
    (truncated, lambda: test_ops_typed.test_stores_convert("8_8_8_8", "SNORM")),
    (unlimited, lambda: test_ops_typed.test_stores_convert("16_16", "UINT")),
    (stored, lambda: test_ops_typed.test_stores_convert("32_32", "UINT")),
    (misplaced, lambda: test_ops_scalar_memory.test_stores("", 2)),
    (misplaced, lambda: test_ops_scalar_memory.test_atomics("add", "buffer_")),
    (counted, lambda: test_ops_lds_exchanges.test_counters("ds_append", 1)),
    (counted, test_ops_lds_exchanges.test_conditional_exchange),
    (swapped, lambda: test_ops_flat.test_flat_atomic("cmpswap", True)),
    (index_sets, lambda: sparse_product("v_smfmac_i32_16x16x64_i8", "gfx942")),
    (halves_of_b, lambda: sparse_product("v_smfmac_f32_16x16x64_f16", "gfx950")),
    (last_register, test_ops_relative.test_a_register_that_does_not_exist),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "test"), FAULTS, ids=[f"{n} {fault.__name__}" for n, (fault, _) in enumerate(FAULTS)]
)
def test_a_planted_fault_is_seen(fault, test, monkeypatch):
    single.program.cache_clear()  # instructions are decoded anew
    test()
    single.program.cache_clear()
    try:
        with monkeypatch.context() as patch:
            fault(patch)
            with pytest.raises((AssertionError, pytest.fail.Exception, MemoryFault)):
                test()
    finally:
        single.program.cache_clear()
