"""Loads and stores of compiled kernels against torch: every dtype, width, mask, cache modifier, address form."""

import pytest
import torch

from harness import emulator
from tests.emulator import kernels
from tests.emulator.data import DTYPES, bits, random_bits, same_bits

GUARD = 64


@pytest.fixture(autouse=True)
def device():
    yield emulator.activate()
    emulator.deactivate()


def expected_copy(src, before, n, other, masked, with_other):
    """Return the expected content of ``before`` after ``kernels.copy``."""
    out = before.clone()
    index = torch.arange(n)
    wanted = index % 3 != 1 if masked else torch.ones(n, dtype=torch.bool)
    out[:n][wanted] = src[:n][wanted]
    if masked and with_other:
        out[:n][~wanted] = other
    return out


def check_copy(dtype, n, size, warps, masked, with_other, moved, load="", store="", seed=0):
    src = random_bits(n + GUARD, dtype, seed)
    dst = random_bits(n + GUARD, dtype, seed + 1)
    other = -3
    expected = expected_copy(src, dst, n, other, masked, with_other)
    grid = (-(-n // (64 * warps * size)),)
    kernels.copy[grid](src, dst, 0, n, other, masked, with_other, moved, load, store, size, warps, num_warps=warps)
    wrong = (bits(dst) != bits(expected)).nonzero().flatten().tolist()
    assert same_bits(dst, expected), f"first wrong elements {wrong[:5]} of {len(wrong)}"


@pytest.mark.slow
@pytest.mark.parametrize("moved", [True, False], ids=["global", "plain"])
@pytest.mark.parametrize(("size", "warps"), [(1, 1), (2, 2), (8, 4), (4, 8)])
@pytest.mark.parametrize("name", DTYPES)
def test_masked_copy_with_other(name, size, warps, moved):
    check_copy(DTYPES[name], 64 * size * warps * 2 - 37, size, warps, True, True, moved)


@pytest.mark.long
@pytest.mark.parametrize(("n", "size"), [(1, 8), (63, 1), (64, 8), (1000, 4), (4096, 8), (4095, 16)])
@pytest.mark.parametrize("name", ["fp16", "fp64", "i8", "i32"])
def test_ragged_and_whole_sizes(name, n, size):
    check_copy(DTYPES[name], n, size, 2, False, False, True)
    check_copy(DTYPES[name], n, size, 2, True, False, True)


@pytest.mark.parametrize(("load", "store"), [(".ca", ".wb"), (".cg", ".cs"), (".cv", ".wt"), (".cg", ".cg")])
@pytest.mark.parametrize("name", ["bf16", "i64"])
def test_cache_modifiers_move_the_same_bits(name, load, store):
    check_copy(DTYPES[name], 500, 4, 1, True, True, True, load, store)
    check_copy(DTYPES[name], 500, 4, 1, False, False, False, load, store)


@pytest.mark.parametrize("with_other", [True, False])
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("name", DTYPES)
def test_plain_pointers_of_triton_kernels(name, warps, with_other, device):
    n, block = 1001, 256
    src, dst = random_bits(n + GUARD, DTYPES[name], 3), random_bits(n + GUARD, DTYPES[name], 4)
    expected = dst.clone()
    wanted = torch.arange(n) % 5 != 2
    expected[:n][wanted] = src[:n][wanted]
    if with_other:
        expected[:n][~wanted] = 7
    kernels.plain_copy[(-(-n // block),)](src, dst, n, 7, block, with_other, num_warps=warps)
    assert same_bits(dst, expected)
    assert any(a.mnemonic.startswith("buffer_") for a in device.drain_launches()[-1].accesses)


@pytest.mark.parametrize("name", DTYPES)
def test_the_widest_plain_accesses(name, device):
    n, block = 8192, 4096
    src, dst = random_bits(n, DTYPES[name], 5), random_bits(n + GUARD, DTYPES[name], 6)
    expected = torch.cat([src, dst[n:]])
    kernels.plain_vector_copy[(n // block,)](src, dst, block, num_warps=4)
    assert same_bits(dst, expected)
    assert {a.width for a in device.drain_launches()[-1].accesses} == {16}
