"""Copies of registers for LDS accesses in flight: the lanes and registers that are named, and no other bytes."""

import numpy as np
import pytest

from harness.emulator.native import local, record

PAIRS = 5
SIZE = record.VECTORS + PAIRS * record.PAIR_BYTES


def records(seed):
    """Return two records of random bytes, and NumPy's view of their vector registers, uint32[pairs, 64, 2]."""
    random = np.random.default_rng(seed)
    memory = [random.integers(0, 256, SIZE, np.uint8) for _ in range(2)]
    return memory, [m[record.VECTORS :].view(np.uint32).reshape(PAIRS, 64, 2) for m in memory]


def masks(seed):
    """Return lane masks: none, all, the first and last lane, halves, and a random one."""
    return [
        0,
        2**64 - 1,
        1,
        1 << 63,
        0xFFFFFFFF,
        int(np.random.default_rng(seed).integers(0, 1 << 64, dtype=np.uint64)),
    ]


def given(mask, vectors, scalars, seed, give):
    """Return the bytes that ``give`` leaves in a record, and those that NumPy computes."""
    (target, source), (_, of) = records(seed)
    source[record.EXEC_BYTES : record.EXEC_BYTES + 8].view(np.uint64)[0] = mask
    wanted = target.copy()
    lanes = np.array([mask >> lane & 1 for lane in range(64)], np.bool_)
    registers = wanted[record.VECTORS :].view(np.uint32).reshape(PAIRS, 64, 2)
    for register in vectors:
        np.copyto(registers[register >> 1, :, register & 1], of[register >> 1, :, register & 1], where=lanes)
    for register in scalars:
        wanted[4 * register : 4 * register + 4] = source[4 * register : 4 * register + 4]
    one, other = local.Numbers(vectors), local.Numbers(scalars)
    give(target.ctypes.data, source.ctypes.data, one.address, one.count, other.address, other.count)
    return target, wanted


REGISTERS = [((), ()), ((0,), ()), ((1,), (3,)), ((2, 3, 9), (106, 107)), ((8, 5), (0, 127))]


@pytest.mark.parametrize(("vectors", "scalars"), REGISTERS)
def test_written_registers_are_returned_in_the_lanes_of_exec(vectors, scalars):
    local.prepare()
    for seed, mask in enumerate(masks(1)):
        target, wanted = given(mask, vectors, scalars, seed, local.give)
        assert np.array_equal(target, wanted)


@pytest.mark.parametrize("pairs", [(), (0,), (4, 1), (0, 1, 2, 3, 4)])
def test_pairs_are_copied_and_no_others(pairs):
    local.prepare()
    (target, source), _ = records(3)
    wanted = target.copy()
    wanted[: record.SET_UP] = source[: record.SET_UP]
    for pair in pairs:
        at = record.VECTORS + pair * record.PAIR_BYTES
        wanted[at : at + record.PAIR_BYTES] = source[at : at + record.PAIR_BYTES]
    numbers = local.Numbers(pairs)
    local.take(target.ctypes.data, source.ctypes.data, numbers.address, numbers.count)
    assert np.array_equal(target, wanted)


def _ignoring_exec(target, source, *rest):
    """Return all lanes."""
    memory = _bytes(source, SIZE)
    memory[record.EXEC_BYTES : record.EXEC_BYTES + 8] = 255
    local.give(target, source, *rest)


def _without_the_last(target, source, vectors, count, scalars, scalar_count):
    """Leave out the last vector register."""
    local.give(target, source, vectors, count - 1, scalars, scalar_count)


def _whole_pairs(target, source, vectors, count, scalars, scalar_count):
    """Return the neighbour of the last register too."""
    more = local.Numbers([2, 3, 9, 8])
    local.give(target, source, more.address, more.count, scalars, scalar_count)


def _bytes(address, size):
    from harness.emulator.watch.model import at_address

    return at_address(address, size)


@pytest.mark.parametrize("fault", [_ignoring_exec, _without_the_last, _whole_pairs])
def test_planted_faults_of_lanes_and_registers(fault):
    local.prepare()
    target, wanted = given(0xF0F0, (2, 3, 9), (), 5, fault)
    assert not np.array_equal(target, wanted)
