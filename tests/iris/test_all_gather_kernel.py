"""The Gluon all-gather compiled for gfx942, and the tile order it walks. No device."""

from __future__ import annotations

import pytest

from harness.isa import remote_mismatch, remote_widths
from tests.iris import kernels


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "i16", "fp32", "i32", "fp64", "i64"])
def test_remote_stores_are_16_bytes_wide(dtype):
    print_of = kernels.all_gather(dtype)
    assert remote_mismatch(print_of, "store", 16) is None
    assert print_of.vgpr_spills == 0


def test_default_tile_of_bytes_is_stored_8_wide():
    assert set(remote_widths(kernels.all_gather("i8"), "store")) == {8}


@pytest.mark.parametrize(("aligned", "contiguous"), [(False, True), (True, False), (False, False)])
def test_other_shapes_and_strides_compile(aligned, contiguous):
    assert set(remote_widths(kernels.all_gather("fp16", aligned, contiguous), "store")) == {2}


def test_heap_bases_are_not_loaded_inside_the_tile_loop():
    """Loads of peer addresses behind a remote store would wait for it: AMD counts both with one counter."""
    vector_loads = sum(remote_widths(kernels.all_gather("fp16"), "load").values())
    local_loads = kernels.all_gather("fp16").widths("local", "load")
    assert (vector_loads, local_loads) == (0, {16: 1})
