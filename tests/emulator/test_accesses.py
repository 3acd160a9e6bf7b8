"""Loads and stores in vector code against the general function: registers, memory and counters, for all addresses."""

import ctypes

import numpy as np
import pytest

from harness.emulator.native import record
from harness.emulator.program.compiled import accesses, lanes, translation
from harness.emulator.program.compiled.translation import Translator
from harness.emulator.program.decode import decode
from tests.emulator.single import listing

PAIRS, BYTES = 16, 4096
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
SHARE = (
    "ds_read_b32 v4, v0 offset:8",
    "ds_read_b64 v[4:5], v0",
    "ds_read_b64 v[0:1], v0 offset:16",
    "ds_read_b128 v[4:7], v1",
    "ds_read2_b32 v[0:1], v0 offset0:1 offset1:7",
    "ds_read2_b64 v[4:7], v0 offset0:1 offset1:3",
    "ds_read_u16 v5, v0",
    "ds_read_i8 v4, v0 offset:3",
    "ds_read_u16_d16_hi v4, v0",
    "ds_write_b8 v0, v4",
    "ds_write_b16 v0, v5 offset:2",
    "ds_write_b32 v1, v4",
    "ds_write_b64 v0, v[4:5]",
    "ds_write_b128 v0, v[4:7]",
    "ds_write2_b32 v0, v4, v5 offset0:0 offset1:1",
    "ds_write2_b64 v0, v[4:5], v[6:7] offset0:0 offset1:1",
)
GLOBAL = (
    "global_load_ubyte v4, v[0:1], off",
    "global_load_sshort v5, v[0:1], off",
    "global_load_dword v4, v[0:1], off offset:4",
    "global_load_dwordx2 v[0:1], v[0:1], off",
    "global_load_dwordx4 v[4:7], v[0:1], off",
    "global_store_byte v[0:1], v4, off",
    "global_store_short v[0:1], v5, off",
    "global_store_dword v[0:1], v4, off",
    "global_store_dwordx2 v[0:1], v[4:5], off",
    "global_store_dwordx4 v[0:1], v[4:7], off",
)
# Distances between the addresses of successive lanes, in bytes; None: random ones, which overlap.
MEMORY = np.zeros(BYTES + 64, np.uint8)
STEPS = (1, 2, 4, 8, 16, 24, 40, 0, None)


def execute(function, parameters, registers, active):
    """Return the status, registers, data share, global memory and counters after an access."""
    share = np.random.default_rng(0).integers(0, 256, BYTES + 64, np.uint8)
    MEMORY[:] = share[::-1]
    start = MEMORY.ctypes.data
    starts, ends = np.array([start], np.uint64), np.array([start + BYTES], np.uint64)
    peer, executions, counts = np.zeros(1, np.int32), np.zeros(4, np.int64), np.zeros((4, 2), np.int64)
    context = np.zeros(record.CONTEXT_FIELDS, np.int64)
    context[[record.STARTS, record.ENDS, record.PEERS]] = [a.ctypes.data for a in (starts, ends, peer)]
    context[record.ALLOCATIONS] = 1
    context[[record.EXECUTIONS, record.LANES]] = executions.ctypes.data, counts.ctypes.data
    context[record.SHARE_BYTES] = BYTES
    block = np.zeros(record.private_offset(PAIRS) + 64, np.uint8)
    wave = block[-block.ctypes.data % 64 :]
    fields = wave[: record.VECTORS].view(np.int64)
    fields[[record.CONTEXT >> 3, record.SHARE >> 3]] = context.ctypes.data, share.ctypes.data
    fields[record.EXEC_BYTES >> 3] = active
    vectors = wave[record.VECTORS :][: PAIRS * record.PAIR_BYTES].view(np.uint32)
    vectors[:] = registers.reshape(-1)
    status = FUNCTION(function)(wave.ctypes.data, parameters.ctypes.data)
    return [status, *(a.tolist() for a in (vectors, share, MEMORY, executions, counts))]


def operands(code, step, seed):
    """Return registers uint32[PAIRS, 64, 2]: an address for each lane in v0 and v1, the rest random."""
    some = np.random.default_rng(seed)
    registers = some.integers(0, 1 << 32, (PAIRS, 64, 2), np.uint64).astype(np.uint32)
    at = some.integers(0, 3900, 64) if step is None else 8 + step * np.arange(64)
    if code in GLOBAL:
        registers[0] = (at + MEMORY.ctypes.data).astype(np.uint64).view(np.uint32).reshape(64, 2)
    else:
        registers[0] = at[:, None]
    return registers


def same(code, step, active, seed=0):
    """Return whether the two functions do the same."""
    translated = Translator(decode(listing(code))).finish()
    row = translated.code[1].copy()
    general, parameters = int(row[2 + record.GENERAL]), row[2:]
    assert general not in (0, int(row[1]))
    registers = operands(code, step, seed)
    one, other = (execute(function, parameters, registers, active) for function in (int(row[1]), general))
    assert one[0] == 0
    return one == other


@pytest.mark.parametrize("active", [-1, 0x5A5A_0FF0_1234_5678, 0], ids=["all", "some", "none"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("code", SHARE + GLOBAL)
def test_the_general_function_does_the_same(code, step, active):
    assert all(same(code, step, active, seed) for seed in range(3))


@pytest.mark.parametrize("code", [SHARE[-1], GLOBAL[-1]])
def test_another_order_of_stores_is_found(code, monkeypatch):
    monkeypatch.setattr(lanes, "passes", lambda kind, parts, n: [[(p, i) for p in range(parts) for i in range(n)]])
    monkeypatch.setattr(translation, "_file", lambda name: f"{name}_of_another_order")
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    right = accesses.AccessForm.__init__

    def planted(form, *arguments):
        right(form, *arguments)
        form.name += "_in_another_order"

    monkeypatch.setattr(accesses.AccessForm, "__init__", planted)
    assert not all(same(code, None, -1, seed) for seed in range(10))


# -- scalar loads ------------------------------------------------------------------------------------------------------

SCALAR = (
    "s_load_dword s16, s[2:3], 0x24",
    "s_load_dwordx2 s[2:3], s[2:3], 0x8",
    "s_load_dwordx4 s[16:19], s[2:3], s4 offset:0x10",
    "s_load_dwordx8 s[16:23], s[2:3], 0x0",
    "s_load_dwordx16 s[16:31], s[2:3], s4",
)
HALF = BYTES // 2


def scalar_load(function, parameters, address):
    """Return the status and the scalar registers after a load at an address; memory is two allocations with a gap."""
    MEMORY[:] = np.random.default_rng(1).integers(0, 256, len(MEMORY), np.uint8)
    start = MEMORY.ctypes.data
    starts, ends = np.array([start, start + HALF], np.uint64), np.array([start + HALF - 64, start + BYTES], np.uint64)
    context = np.zeros(record.CONTEXT_FIELDS, np.int64)
    context[[record.STARTS, record.ENDS, record.ALLOCATIONS]] = starts.ctypes.data, ends.ctypes.data, 2
    wave = np.zeros(record.VECTORS, np.uint8)
    wave.view(np.int64)[record.CONTEXT >> 3] = context.ctypes.data
    scalars = wave[:512].view(np.uint32)
    scalars[:32] = np.arange(32)
    scalars[2:4] = np.array([address], np.uint64).view(np.uint32)
    return FUNCTION(function)(wave.ctypes.data, parameters.ctypes.data), scalars.tolist()


@pytest.mark.parametrize("code", SCALAR)
def test_scalar_loads_do_the_same(code):
    row = Translator(decode(listing(code))).finish().code[1]
    form, general, parameters = int(row[1]), int(row[2 + record.GENERAL]), row[2:].copy()
    assert general not in (0, form)
    start, seen = MEMORY.ctypes.data, set()
    for at in (
        0,
        1,
        64,
        HALF - 200,
        HALF - 96,
        HALF - 64,
        HALF - 8,
        HALF,
        HALF + 7,
        BYTES - 64,
        BYTES - 4,
        BYTES,
        -64,
        -8,
    ):
        # The allocation that was read last: each of them, none, and one that another launch had.
        for hint in (0, 1, -1, 2):
            parameters[record.HINT] = hint
            wanted = scalar_load(general, parameters.copy(), start + at)
            assert scalar_load(form, parameters, start + at) == wanted
            assert wanted[0] or parameters[record.HINT] == (at >= HALF - 40)
            seen.add(wanted[0])
    assert seen == {0, 1}


def test_a_scalar_load_from_another_allocation_is_found(monkeypatch):
    """A planted fault: the end of the allocation that was read last is not compared."""
    row = Translator(decode(listing(SCALAR[3]))).finish().code[1]
    parameters = row[2:].copy()
    monkeypatch.setattr(accesses._Body, "_slow_if", lambda self, condition: None)
    monkeypatch.setattr(translation, "_file", lambda name: f"{name}_without_bounds")
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    plain = accesses.AccessForm.__init__

    def renamed(self, kind, parts):
        plain(self, kind, parts)
        self.name += "_without_bounds"

    monkeypatch.setattr(accesses.AccessForm, "__init__", renamed)
    wrong = int(Translator(decode(listing(SCALAR[3]))).finish().code[1][1])
    general = int(row[2 + record.GENERAL])
    place = MEMORY.ctypes.data + HALF - 64
    assert scalar_load(wrong, parameters.copy(), place) != scalar_load(general, parameters.copy(), place)
