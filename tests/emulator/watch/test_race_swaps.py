"""Mode ``race`` on compare-and-swaps that put back a half of the dword that they swap, as for a 2-byte element."""

import pytest
import torch

from harness import emulator
from harness.emulator.faults import DataRace
from tests.emulator.watch import race_kernels as kernels
from tests.emulator.watch.litmus import add, lines
from tests.emulator.watch.racing import WAIT, race

SEEDS = (None, *range(6))
LINE = ['.file 1 "/" "add.py"', ".loc 1 7 3"]
GUESS = "global_load_dword v9, v0, {x}"
SWAP = "global_atomic_cmpswap v8, v0, v[2:3], {x} sc0 sc1"


def swap(mask: int, *between: str, old: int = 0, named: str = "v4", guess: tuple[str, ...] = (GUESS,)) -> list[str]:
    """Swap x for ``old & mask | element``: what the element's loop does if it read ``old``."""
    return [*LINE, *guess, f"v_mov_b32_e32 v3, {old:#x}", f"v_mov_b32_e32 v4, {mask:#x}", f"s_mov_b32 s14, {mask:#x}",
            "v_mov_b32_e32 v2, 0", f"v_and_or_b32 v2, v3, {named}, v2", *between, SWAP]  # fmt: skip


def half(at: int) -> list[str]:
    return [f"global_store_short v0, v1, {{x}} offset:{at}"]


def clean(*parts: list[str]) -> None:
    for seed in SEEDS:
        assert race([(rank, lines(part)) for rank, part in enumerate(parts)], seed) is None


def racy(text: str, *parts: list[str]) -> None:
    for seed in SEEDS:
        assert text in str(race([(rank, lines(part)) for rank, part in enumerate(parts)], seed))


@pytest.mark.parametrize("named", ["v4", "s14"])
@pytest.mark.parametrize("old", [0, 7], ids=["swaps", "does-not-swap"])
def test_only_the_half_that_changes_is_accessed(named, old):
    lower = swap(0xFFFF0000, "buffer_wbl2 sc0 sc1", WAIT, old=old, named=named)
    clean(lower, half(2))
    racy("data race on 2 bytes at byte 0", lower, half(0))
    clean(lower, lower, half(2))


def test_either_half_may_be_put_back():
    upper = swap(0xFFFF)
    clean(upper, half(0))
    clean(swap(0xFFFF0000), upper)
    racy("atomic of 2 bytes at system scope", upper, half(2))
    racy("data race on 2 bytes at byte 2", upper, half(2))
    racy("agent scope does not include another rank", swap(0xFFFF0000), add("x", 8, "sc0"))


def test_a_swap_that_puts_back_nothing_accesses_all_of_it():
    racy("data race on 2 bytes at byte 2", swap(0), half(2))
    racy("data race on 1 bytes at byte 1", swap(0xFFFF00FF), ["global_store_byte v0, v1, {x} offset:1"])
    clean(swap(0xFFFF00FF), half(2))


@pytest.mark.parametrize(
    "between",
    [
        ["v_mov_b32_e32 v4, 0"],
        ["v_or_b32_e32 v2, 0x10000, v2"],
        ["v_mov_b32_e32 v3, v3"],
        [".LS1:"],
        ["s_cbranch_scc1 .LS2", ".LS2:"],
    ],
    ids=["mask", "new value", "compared value", "jump to it", "branch"],
)
def test_what_is_not_surely_put_back_is_accessed(between):
    """Another value may have come into one of the registers, or the wavefront may have come another way."""
    racy("data race on 2 bytes at byte 2", swap(0xFFFF0000, *between), half(2))


def test_a_changed_byte_is_accessed_whatever_the_mask_says():
    """The element's part has bits under the mask."""
    changes = swap(0xFFFF0000)
    changes[-3] = "v_mov_b32_e32 v2, 0x20000"
    racy("data race on 1 bytes at byte 2", changes, ["global_store_byte v0, v1, {x} offset:2"])
    clean(changes, ["global_store_byte v0, v1, {x} offset:3"])


def test_a_swap_of_the_programs_own_accesses_all_of_it():
    """No load has guessed the value: whether it swaps depends on the half that it would put back too."""
    racy("data race on 2 bytes at byte 2", swap(0xFFFF0000, guess=()), half(2))
    racy("data race on 2 bytes at byte 2", swap(0xFFFF0000, guess=(GUESS, ".loc 1 8 3")), half(2))


# -- compiled kernels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("first", [0, 1])
def test_the_neighbour_of_a_narrow_atomic(dtype, first, value):
    """One rank adds to every second element, another one stores the elements between them."""
    driver = emulator.activate(mode="race", choices=3)
    try:
        out = torch.zeros(64, dtype=dtype)

        def both(stored: int) -> None:
            with emulator.concurrent_ranks(driver) as ranks:
                with ranks.rank(0):
                    kernels.add_to_every_second[(1,)](out, first, value, 32)
                with ranks.rank(1):
                    kernels.store_every_second[(1,)](out, stored, 32)

        both(1 - first)
        assert out.tolist() == 32 * ([value, 2.0] if first == 0 else [2.0, value])
        with pytest.raises(DataRace, match="atomic of 2 bytes at system scope"):
            both(first)
    finally:
        emulator.deactivate()


def test_a_kernels_own_swap_of_a_part_races_with_a_store_to_the_rest():
    """A planted fault: it compiles to the two instructions of the loop, without a loop."""
    driver = emulator.activate(mode="race", choices=3)
    old, out = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)

    def both() -> None:
        with emulator.concurrent_ranks(driver) as ranks:
            with ranks.rank(0):
                kernels.swap_lower_halves[(1,)](out, old, -65536, 32)
            with ranks.rank(1):
                kernels.store_every_second[(1,)](out.view(torch.int16), 1, 32)

    try:
        with pytest.raises(DataRace, match="of 4 bytes at system scope"):
            both()
    finally:
        emulator.deactivate()
