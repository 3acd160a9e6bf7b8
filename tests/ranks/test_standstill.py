"""Ranks that can never go on are found at once; ranks that are slow are waited for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import standstill
from harness.emulator.driver.repetition import can_write_lds, can_write_memory
from harness.emulator.listing.instructions import Instruction
from harness.ranks import RankGroup, RankHang, idle
from harness.standstill import ARRIVALS, CONFIRMED, EPOCH, INSIDE, Observer, Polling, Standstill
from tests.ranks.standstill_targets import WORDS

TARGETS = "tests.ranks.standstill_targets"
LONG = 300.0
"""Seconds, of a call that has to end long before."""


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    with RankGroup(2, preload=[TARGETS]) as ranks:
        yield ranks


def call(group: RankGroup, folder: Path, mode: str, *parts: str, deadline: float = LONG) -> list[str]:
    file = folder / "words"
    file.write_bytes(bytes(4 * WORDS))
    return group.call(f"{TARGETS}:act", {"file": str(file), "mode": mode, "parts": list(parts)}, deadline=deadline)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "weak"])
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("poll", "ranks [0, 1] poll memory that no rank changes"),
        ("leave", "ranks [0] poll memory that no rank changes, ranks [1] wait for the others to end their part"),
    ],
)
def test_ranks_that_can_never_go_on(group: RankGroup, tmp_path: Path, mode: str, other: str, words: str) -> None:
    with pytest.raises(RankHang) as caught:
        call(group, tmp_path, mode, "poll", other)
    assert caught.value.standstill == words
    assert f"at a standstill: {words}; the group was killed" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "wait"),
    [
        ("fast", "lock"),
        ("weak", "lock"),
        ("fast", "lock with 4 warps"),
        ("weak", "lock with 4 warps"),
        ("fast", "lock by exchange"),
        ("fast", "poll by atomic"),
    ],
)
def test_ranks_that_poll_by_atomics(group: RankGroup, tmp_path: Path, mode: str, wait: str) -> None:
    """For a lock that no rank gives back, or a flag; the result goes by way of LDS to all wavefronts of a program."""
    with pytest.raises(RankHang) as caught:
        call(group, tmp_path, mode, wait, wait)
    assert caught.value.standstill == "ranks [0, 1] poll memory that no rank changes"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "weak"])
def test_a_lock_that_is_given_back_late_is_waited_for(group: RankGroup, tmp_path: Path, mode: str) -> None:
    assert call(group, tmp_path, mode, "lock with 4 warps", "unlock late") == ["done", "done"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "weak"])
@pytest.mark.parametrize("other", ["sleep", "count", "count by atomics"])
def test_a_slow_rank_is_waited_for(group: RankGroup, tmp_path: Path, mode: str, other: str) -> None:
    """For several times as long as it takes to find out that the one that polls repeats itself."""
    assert call(group, tmp_path, mode, "poll", other) == ["done", "done"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "weak"])
def test_a_rank_that_waits_on_the_host_for_one_that_polls(
    group: RankGroup, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a library's kernel hangs on one rank, and the other one is in a barrier of torch.distributed by then."""
    monkeypatch.setattr(idle, "SECONDS", 2.0)
    with pytest.raises(RankHang) as caught:
        call(group, tmp_path, mode, "poll", "receive")
    assert caught.value.standstill == (
        "ranks [0] poll memory that no rank changes, ranks [1] wait on the host and use no core"
    )


@pytest.mark.slow
def test_a_loop_that_stores_has_the_whole_deadline(group: RankGroup, tmp_path: Path) -> None:
    with pytest.raises(RankHang) as caught:
        call(group, tmp_path, "fast", "poll and store", "leave", deadline=4.0)
    assert caught.value.standstill is None


@pytest.fixture
def words() -> Iterator[tuple[Observer, dict[int, memoryview]]]:
    """An observer of ranks 0 and 1, and their words."""
    descriptors = {rank: standstill.memory_file() for rank in (0, 1)}
    observer = Observer(descriptors)
    yield observer, observer._words
    observer.close()
    for descriptor in descriptors.values():
        os.close(descriptor)


def test_which_ranks_report_that_they_poll(words: tuple[Observer, dict[int, memoryview]]) -> None:
    observer, of = words
    confirm(of[1], 3)
    assert observer.polling({0, 1}) == {1: Polling(1, 3)}
    assert observer.polling({0}) == {}


def confirm(words: memoryview, times: int = 1) -> None:
    words[EPOCH] |= 1
    words[CONFIRMED] += times


def test_two_confirmations_of_all_are_needed(words: tuple[Observer, dict[int, memoryview]]) -> None:
    observer, of = words
    confirm(of[0], 5)
    assert observer.look({0, 1}) is None, "rank 1 may go on"
    confirm(of[1], 5)
    assert observer.look({0, 1}) is None, "the first look at a standstill"
    confirm(of[0], 2)
    confirm(of[1], 1)
    assert observer.look({0, 1}) is None
    confirm(of[1], 1)
    assert observer.look({0, 1}) == Standstill((0, 1), ())


def test_a_rank_that_went_on_in_between_is_waited_for(words: tuple[Observer, dict[int, memoryview]]) -> None:
    observer, of = words
    confirm(of[0])
    confirm(of[1])
    assert observer.look({0, 1}) is None
    of[1][EPOCH] += 2  # it went on, and repeats itself again
    confirm(of[0], 9)
    confirm(of[1], 9)
    assert observer.look({0, 1}) is None
    assert observer.look({0, 1}) is None
    observer.reset()
    confirm(of[0], 9)
    confirm(of[1], 9)
    assert observer.look({0, 1}) is None, "the first look of a call"


@pytest.mark.parametrize(
    ("words", "waiting", "expected"),
    [
        ({0: (1, 0, 0, 0), 1: (0, 0, 1, 1)}, {0, 1}, Standstill((0,), (1,))),
        ({0: (1, 0, 1, 0), 1: (0, 0, 1, 1)}, {0, 1}, None),  # both have arrived: rank 1 is about to leave
        ({0: (0, 0, 0, 0), 1: (0, 0, 1, 1)}, {0, 1}, None),  # rank 0 computes
        ({0: (0, 0, 1, 1), 1: (0, 0, 1, 1)}, {0, 1}, None),  # all are in the barrier
        ({0: (0, 0, 1, 0), 1: (0, 0, 2, 1)}, {1}, Standstill((), (1,))),  # rank 0 has answered
        ({0: (0, 0, 2, 0), 1: (0, 0, 2, 1)}, {1}, None),
        ({0: (0, 0, 0, 0), 1: (0, 0, 0, 0)}, set(), None),
    ],
)
def test_which_ranks_cannot_go_on(words, waiting, expected) -> None:
    assert (EPOCH, CONFIRMED, ARRIVALS, INSIDE) == (0, 1, 2, 3)
    assert standstill.standing(words, waiting) == expected


@pytest.mark.parametrize(
    ("text", "memory", "lds"),
    [
        ("global_load_dword v0, v1, s[0:1] sc0 sc1", False, False),
        ("buffer_inv sc0 sc1", False, False),
        ("buffer_wbl2 sc0 sc1", False, False),
        ("s_load_dword s0, s[2:3], 0x0", False, False),
        ("ds_read_b32 v0, v1", False, False),
        ("ds_bpermute_b32 v0, v1, v2", False, False),
        ("v_cmp_eq_u32_e32 vcc, 0, v0", False, False),
        ("global_store_dword v0, v1, s[0:1]", True, False),
        ("global_atomic_add v0, v1, v2, s[0:1] sc0", False, False),
        ("global_atomic_cmpswap v0, v1, v[2:3], s[0:1] sc0", False, False),
        ("buffer_atomic_cmpswap_x2 v[0:3], v4, s[0:3], 0 offen sc0", False, False),
        ("global_atomic_swap v0, v1, v2, s[0:1] sc0", False, False),
        ("flat_store_byte v[0:1], v2", True, True),
        ("flat_atomic_cmpswap v0, v[2:3], v[4:5] sc0", False, True),
        ("flat_load_dword v0, v[2:3]", False, False),
        ("ds_write_b32 v0, v1", False, True),
        ("ds_add_u32 v0, v1", False, True),
        ("ds_cmpst_rtn_b32 v0, v1, v2, v3", False, True),
        ("buffer_load_dword v0, s[8:11], 0 offen lds", False, True),
        ("global_load_lds_dword v0, s[0:1]", False, True),
        ("scratch_store_dword off, v0, s0", True, False),
        ("s_atomic_add s0, s[2:3], 0x0", True, False),
    ],
)
def test_which_instructions_write(text: str, memory: bool, lds: bool) -> None:
    mnemonic = text.split()[0]
    modifiers = {"lds": ""} if text.endswith(" lds") else {}
    instruction = Instruction(0, 1, text, mnemonic, (), modifiers, ())
    assert (can_write_memory(instruction), can_write_lds(instruction)) == (memory, lds)
