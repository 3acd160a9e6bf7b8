"""``Config``: defaults and validation. No device, one process."""

from __future__ import annotations

import types

import pytest
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from iris_under_test.ccl import Config, ReduceOp
from iris_under_test.ccl.kernel_launch import compiler_options

POSITIVE = (
    "block_size_m", "block_size_n", "swizzle_size", "comm_sms", "num_xcds", "all_reduce_num_rings", "num_warps",
    "chunk_size",
)  # fmt: skip


def test_defaults():
    config = Config()
    assert vars(config) == {
        "block_size_m": 32,
        "block_size_n": 64,
        "swizzle_size": 4,
        "comm_sms": 64,
        "num_xcds": config.num_xcds,
        "chunk_size": min(16, 64 // config.num_xcds),
        "use_gluon": False,
        "all_gather_variant": "persistent",
        "all_reduce_variant": "two_shot",
        "all_reduce_distribution": 1,
        "all_reduce_num_rings": 1,
        "all_reduce_ring_slice_n": 64,
        "reduce_scatter_variant": "two_shot",
        "num_stages": 1,
        "num_warps": 4,
        "threads_per_warp": 64,
        "waves_per_eu": 0,
        "protocol": "simple",
    }
    assert config.num_xcds in (1, 8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in POSITIVE for value in (0, -1)),
        ("all_gather_variant", "ring"),
        ("all_reduce_variant", "three_shot"),
        ("all_reduce_distribution", 2),
        ("all_reduce_ring_slice_n", 0),
        ("all_reduce_ring_slice_n", 48),
        ("all_reduce_ring_slice_n", 128),
        ("reduce_scatter_variant", "one_shot"),
        ("threads_per_warp", 16),
        ("num_warps", 3),
        ("waves_per_eu", -1),
    ],
)
def test_bad_values_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        Config(**{field: value})


def test_ring_slice_must_be_a_power_of_two_even_if_it_divides():
    with pytest.raises(ValueError, match="power of two, got 48"):
        Config(block_size_n=96, all_reduce_ring_slice_n=48)
    with pytest.raises(ValueError, match="power of two, got 96"):
        Config(block_size_n=96)
    assert Config(block_size_n=96, all_reduce_ring_slice_n=32).all_reduce_ring_slice_n == 32


@pytest.mark.parametrize(("programs", "xcds", "chunk"), [(64, 8, 8), (64, 1, 16), (304, 8, 16), (4, 8, 1)])
def test_chunk_size_follows_the_programs_per_die(programs, xcds, chunk):
    assert Config(comm_sms=programs, num_xcds=xcds).chunk_size == chunk
    assert Config(comm_sms=programs, num_xcds=xcds, chunk_size=3).chunk_size == 3


def test_fields_may_be_assigned_after_construction():
    config = Config()
    config.all_gather_variant = "anything"
    assert config.all_gather_variant == "anything"


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (GPUTarget("hip", "gfx942", 64), {"num_warps": 8, "num_stages": 1, "waves_per_eu": 2}),
        (GPUTarget("cuda", 90, 32), {"num_warps": 8, "num_stages": 1}),
    ],
)
def test_the_occupancy_hint_is_for_amd_alone(monkeypatch, target, wanted):
    """Triton refuses an option that the target's compiler has not."""
    config = Config(num_warps=8, waves_per_eu=2)
    monkeypatch.setattr(driver, "_active", types.SimpleNamespace(get_current_target=lambda: target))
    assert compiler_options(config) == wanted


def test_reduce_op_codes():
    assert {op.name: int(op) for op in ReduceOp} == {
        "SUM": 0, "PRODUCT": 1, "MIN": 2, "MAX": 3, "BAND": 4, "BOR": 5, "BXOR": 6,
    }  # fmt: skip
