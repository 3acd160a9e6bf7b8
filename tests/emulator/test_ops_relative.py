"""Moves between scalar registers that M0 selects."""

import pytest

from harness.emulator import MemoryFault
from harness.emulator.faults import MissingWaitStates, UndefinedValue
from tests.emulator.covering import covers
from tests.emulator.single import execute
from tests.emulator.watch import checking


@covers("s_movrels_b32 s_movrels_b64 s_movreld_b32 s_movreld_b64")
@pytest.mark.parametrize("words", [1, 2])
def test_moves(words):
    """Each wavefront has an M0 of its own."""
    name, pair = f"b{32 * words}", (lambda r: f"s[{r}:{r + 1}]" if words == 2 else f"s{r}")
    s = {n: 100 + n for n in range(40)} | {124: [4, 10]}
    result = execute(f"s_movrels_{name} {pair(30)}, {pair(2)}", s=s, waves=2)
    for wave, m0 in enumerate((4, 10)):
        for i in range(words):
            assert result.s(30 + i)[wave] == 100 + 2 + m0 + i
    result = execute(f"s_movreld_{name} {pair(20)}, {pair(2)}", s=s, waves=2)
    for wave, m0 in enumerate((4, 10)):
        changed = {20 + m0 + i: 102 + i for i in range(words)}
        assert all(result.s(n)[wave] == changed.get(n, 100 + n) for n in range(40))


def test_a_register_that_does_not_exist():
    with pytest.raises(MemoryFault, match="s102 does not exist"):
        execute("s_movrels_b32 s0, s2", s={124: 100})
    with pytest.raises(MemoryFault, match="s101 does not exist"):
        execute("s_movreld_b64 s[0:1], s[2:3]", s={124: 101})


def test_mode_check():
    memory = checking.Memory()
    move = ["s_mov_b32 s9, 5", "s_mov_b32 m0, 3", "s_nop 0", "s_movrels_b32 s20, s6"]
    store = ["s_store_dword s20, s[4:5], 0x0", "s_endpgm"]
    checking.run(*move, *store, memory=memory)
    assert memory.words[0] == 5
    with pytest.raises(UndefinedValue, match="in s20 is stored"):
        checking.run(*move[:-1], "s_movrels_b32 s20, s7", *store, memory=memory)
    with pytest.raises(UndefinedValue, match="the register that m0 selects is undefined"):
        checking.run(move[0], move[3], *store, memory=memory)
    checking.run(*move[:3], "s_movreld_b32 s17, s9", *store, memory=memory)
    with pytest.raises(UndefinedValue, match="in s20 is stored"):
        checking.run(*move[:3], "s_movreld_b32 s17, s10", *store, memory=memory)
    with pytest.raises(MissingWaitStates, match="needs 1 wait states"):
        checking.run(*move[:2], move[3], *store, memory=memory, wait_states=True)
