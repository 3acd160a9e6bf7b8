"""The Gluon all-gather compiled for gfx942, and the tile order it walks. No device."""

from __future__ import annotations

import pytest

from harness.isa import remote_mismatch, remote_widths
from tests.iris import kernels


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "i16", "fp32", "i32", "fp64", "i64"])
def test_remote_stores_are_16_bytes_wide(dtype):
    print_of = kernels.all_gather(dtype)
    assert remote_mismatch(print_of, "store", 16) is None
    assert print_of.vgpr_spills == 0


def test_default_tile_of_bytes_is_stored_8_wide():
    assert set(remote_widths(kernels.all_gather("i8"), "store")) == {8}


@pytest.mark.parametrize(("aligned", "contiguous"), [(False, True), (True, False), (False, False)])
def test_other_shapes_and_strides_compile(aligned, contiguous):
    widths = remote_widths(kernels.all_gather("fp16", aligned, contiguous), "store")
    # Where nothing is masked LLVM joins neighbours, which this GPU need not have aligned.
    assert set(widths) == ({2, 16} if contiguous else {2})


def test_nothing_is_loaded_between_the_stores_of_a_tile():
    """A load behind a remote store, as of a peer's address, would wait for it: AMD counts both with one counter."""
    words = (line.split()[:1] for line in kernels.all_gather_listing("fp16").splitlines())
    memory = [word for line in words for word in line if word.startswith("global_")]
    first = memory.index("global_store_dwordx4")
    assert memory[first - 1 : first + 4] == ["global_load_dwordx4", *["global_store_dwordx4"] * 4]
