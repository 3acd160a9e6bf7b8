"""Typed buffer accesses: every format against its definition, on fields of all kinds; ranges, the watched modes."""

import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from harness.emulator import MemoryFault
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import DataRace, MissingWait, UndefinedValue, UnimplementedInstruction
from harness.emulator.program.decode import decode
from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from harness.emulator.watch.trace import Trace
from harness.emulator.watch.weak import Weak
from tests.emulator.assembler import available, encoding
from tests.emulator.covering import covers
from tests.emulator.ieee import F16, F32
from tests.emulator.single import execute, listing
from tests.emulator.test_ops_memory import LANES, MASK, OLD, Memory
from tests.emulator.watch import checking

# Name: number in DATA_FORMAT, and the bits of x, y, z, w. Names list the components from the highest bit.
DATA = {
    "8": (1, [8]), "16": (2, [16]), "8_8": (3, [8, 8]), "32": (4, [32]), "16_16": (5, [16, 16]),
    "10_11_11": (6, [11, 11, 10]), "11_11_10": (7, [10, 11, 11]), "10_10_10_2": (8, [2, 10, 10, 10]),
    "2_10_10_10": (9, [10, 10, 10, 2]), "8_8_8_8": (10, [8] * 4), "32_32": (11, [32] * 2),
    "16_16_16_16": (12, [16] * 4), "32_32_32": (13, [32] * 3), "32_32_32_32": (14, [32] * 4),
}  # fmt: skip
NUMBERS = {"UNORM": 0, "SNORM": 1, "USCALED": 2, "SSCALED": 3, "UINT": 4, "SINT": 5, "FLOAT": 7}
CASES = [
    (data, kind)
    for data, (_, bits) in DATA.items()
    for kind in NUMBERS
    if not (kind == "FLOAT" and min(bits) < 10) and not (32 in bits and kind not in ("UINT", "SINT", "FLOAT"))
]
LOADABLE = [
    f"{s}buffer_load_format_{d}{n}" for s in ("", "t") for d in ("", "d16_") for n in ("x", "xy", "xyz", "xyzw")
]


def number_of(field, bits, kind):
    """Return the value of a field: an integer, a Fraction, or the bits of a float32."""
    signed = field - (field >> bits - 1 << bits)
    if kind == "FLOAT":
        if bits == 32:
            return struct.unpack("<f", struct.pack("<I", field))[0]
        return float(np.array(field << {16: 0, 11: 4, 10: 5}[bits], np.uint16).view(np.float16))
    if kind in ("UNORM", "SNORM"):
        top = (1 << bits - (kind == "SNORM")) - 1
        return Fraction(field, top) if kind == "UNORM" else max(Fraction(signed, top), Fraction(-1))
    return {"USCALED": Fraction(field), "SSCALED": Fraction(signed), "UINT": field, "SINT": signed}[kind]


def in_register(value, kind, halves):
    """Return the bits of a value in a register of 32 bits, or in half of one."""
    if kind in ("UINT", "SINT"):
        return value & (0xFFFF if halves else 0xFFFFFFFF)
    if isinstance(value, float):
        word = np.array(value, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            return int(word.astype(np.float16).view(np.uint16)) if halves else int(word.view(np.uint32))
    if value == 0:
        return 0
    return F16.round(value) if halves else F32.round(value)


def descriptor(memory, data, kind, select=(4, 5, 6, 7), records=4096):
    word = sum(s << 3 * i for i, s in enumerate(select)) | NUMBERS[kind] << 12 | DATA[data][0] << 15
    return {4: memory.address & 0xFFFFFFFF, 5: memory.address >> 32, 6: records, 7: word}


def elements(data, seed):
    """Return a field for each lane and component, the extreme ones first."""
    some = random.Random(f"{data}{seed}")
    bits = DATA[data][1]
    edges = [lambda b: 0, lambda b: (1 << b) - 1, lambda b: 1 << b - 1, lambda b: (1 << b - 1) - 1, lambda b: 1,
             lambda b: (1 << b - 1) + 1]  # fmt: skip
    return [[edges[n](b) if n < 6 else some.getrandbits(b) for b in bits] for n in LANES]


def fill(memory, data, fields):
    """Put an element into each lane's part of memory; return its offset."""
    size = sum(DATA[data][1]) // 8
    for n, parts in enumerate(fields):
        word, at = 0, 0
        for part, bits in zip(parts, DATA[data][1], strict=True):
            word |= part << at
            at += bits
        memory.bytes[size * n : size * (n + 1)] = np.frombuffer(word.to_bytes(size, "little"), np.uint8)
    return [size * n for n in LANES]


def is_nan(word, kind, halves):
    return kind == "FLOAT" and (F16 if halves else F32).is_nan(word)


def loaded_by(name, fields, data, kind, select):
    """Return the registers by lane; None where a NaN may have any payload."""
    halves, components = "d16" in name, len(name.rpartition("_")[2])
    out = []
    for parts in fields:
        have = [in_register(number_of(f, b, kind), kind, halves) for f, b in zip(parts, DATA[data][1], strict=True)]
        one = 1 if kind in ("UINT", "SINT") else 0x3C00 if halves else 0x3F800000
        memory = [*have, 0, 0, 0][:3] + ([have[3]] if len(have) == 4 else [one])
        out.append([memory[s - 4] if s > 3 else one * s for s in select][:components])
    return out


@pytest.mark.long
@covers(*LOADABLE)
@pytest.mark.parametrize(("data", "kind"), CASES)
def test_loads_convert(data, kind):
    for name in LOADABLE:
        memory, fields = Memory(), elements(data, kind)
        typed, halves, components = name[0] == "t", "d16" in name, len(name.rpartition("_")[2])
        select = (4, 5, 6, 7) if typed else random.Random(name).choice([(4, 5, 6, 7), (6, 5, 4, 7), (7, 1, 4, 0)])
        offsets = fill(memory, data, fields)
        words = (components + 1) // 2 if halves else components
        form = f" format:[BUF_DATA_FORMAT_{data},BUF_NUM_FORMAT_{kind}]" if typed else ""
        text = f"{name} {'v0' if words == 1 else f'v[0:{words - 1}]'}, v8, s[4:7], 0 offen{form}"
        other = descriptor(memory, "8", "UINT", (0, 0, 0, 0)) if typed else descriptor(memory, data, kind, select)
        result = execute(text, v={8: offsets, **dict.fromkeys(range(4), OLD)}, s=other, exec=MASK, memory=memory.known)
        wanted = loaded_by(name, fields, data, kind, select)
        for n in LANES:
            for i in range(components):
                word = result.v(i // 2 if halves else i)[n]
                if not MASK >> n & 1:
                    assert word == OLD
                    continue
                got = word >> 16 * (i % 2) & 0xFFFF if halves else word
                same = got == wanted[n][i] or (is_nan(got, kind, halves) and is_nan(wanted[n][i], kind, halves))
                assert same, f"{text}, lane {n}, {'xyzw'[i]}: {got:#x}, not {wanted[n][i]:#x}"
            if halves and components == 1:
                assert result.v(0)[n] >> 16 == OLD >> 16, "the other half is kept"


@covers("buffer_load_format_d16_hi_x buffer_store_format_d16_hi_x")
def test_high_halves():
    memory, fields = Memory(), elements("16", 1)
    offsets = fill(memory, "16", fields)
    s = descriptor(memory, "16", "UINT")
    result = execute(
        "buffer_load_format_d16_hi_x v0, v8, s[4:7], 0 offen", v={8: offsets, 0: OLD}, s=s, memory=memory.known
    )
    assert result.v(0) == [f[0] << 16 | OLD & 0xFFFF for f in fields]
    execute(
        "buffer_store_format_d16_hi_x v0, v8, s[4:7], 0 offen",
        v={8: offsets, 0: [n << 16 | 7 for n in LANES]},
        s=s,
        memory=memory.known,
    )
    assert memory.bytes[:128].view(np.uint16).tolist() == list(LANES)


STORABLE = [(d, k) for d, k in CASES if k not in ("USCALED", "SSCALED") and not (k == "FLOAT" and 11 in DATA[d][1])]


@pytest.mark.long
@covers(*[n.replace("load", "store") for n in LOADABLE])
@pytest.mark.parametrize(("data", "kind"), STORABLE)
def test_stores_convert(data, kind):
    """Numbers are rounded to the nearest of the format, limited to its range; a NaN becomes 0 if normalized."""
    numbers = [0.0, -0.0, 1.0, -1.0, 0.5, 0.49999, 1e9, -1e9, float("nan"), float("inf"), 0.2, 3.7, -0.3]
    some = random.Random(f"{data}{kind}")
    bits = DATA[data][1]
    for name in (n.replace("load", "store") for n in LOADABLE):
        halves, components = "d16" in name, len(name.rpartition("_")[2])
        if components < len(bits):
            continue
        memory = Memory()
        size = sum(bits) // 8
        values, registers = [], {}
        for i in range(components):
            if kind in ("UINT", "SINT"):
                column = [some.choice((0, 1, 0x7F, 0x80, 0xFFFF, 0xFFFFFFFF, some.getrandbits(32))) for _ in LANES]
            else:
                column = [int(np.array(some.choice(numbers), np.float32).view(np.uint32)) for _ in LANES]
            if halves:
                with np.errstate(over="ignore"):
                    floats = np.array(column, np.uint32).view(np.float32).astype(np.float16).view(np.uint16).tolist()
                column = [w & 0xFFFF for w in column] if kind in ("UINT", "SINT") else floats
                register = registers.setdefault(i // 2, [0] * 64)
                registers[i // 2] = [r | c << 16 * (i % 2) for r, c in zip(register, column, strict=True)]
            else:
                registers[i] = column
            values.append(column)
        words = len(registers)
        form = f" format:{DATA[data][0] | NUMBERS[kind] << 4}" if name[0] == "t" else ""
        text = f"{name} {'v0' if words == 1 else f'v[0:{words - 1}]'}, v8, s[4:7], 0 offen{form}"
        execute(text, v={8: [size * n for n in LANES], **registers}, s=descriptor(memory, data, kind), exec=MASK,
                memory=memory.known)  # fmt: skip
        for n in LANES:
            got = int.from_bytes(memory.bytes[size * n : size * (n + 1)].tobytes(), "little")
            if not MASK >> n & 1:
                assert got == int.from_bytes(memory.before[size * n : size * (n + 1)], "little")
                continue
            for i, width in enumerate(bits):
                field, got = got & (1 << width) - 1, got >> width
                assert field in fields_of(values[i][n], width, kind, halves), (
                    f"{text}, lane {n}, {'xyzw'[i]}: {field:#x}"
                )


def fields_of(word, bits, kind, halves):
    """Return the fields that may store a register's value: one, but for a NaN."""
    width = 16 if halves else 32
    if kind == "UINT":
        return [min(word, (1 << bits) - 1)]
    if kind == "SINT":
        value = word - (word >> width - 1 << width)
        return [min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1) & (1 << bits) - 1]
    number = float(np.array(word, np.uint16).view(np.float16) if halves else np.array(word, np.uint32).view(np.float32))
    if kind == "FLOAT":
        with np.errstate(over="ignore"):
            if number != number:
                return [w for w in (word, 0x7FC00000, 0x7E00) if w < 1 << bits]
            f = np.array(number, np.float16 if bits == 16 else np.float32)
        return [int(f.view(f"u{bits // 8}"))]
    least, scale = (0, (1 << bits) - 1) if kind == "UNORM" else (-1, (1 << bits - 1) - 1)
    exact = Fraction(0 if number != number else min(max(number, least), 1)) * scale
    return [round(exact) & (1 << bits) - 1]


@pytest.mark.skipif(not available(), reason="this Triton has no assembler that Python can call")
def test_formats_have_the_numbers_of_the_assembler():
    for data, kind in CASES:
        name = f"[BUF_DATA_FORMAT_{data},BUF_NUM_FORMAT_{kind}]"
        number = DATA[data][0] | NUMBERS[kind] << 4
        line = "tbuffer_load_format_x v0, off, s[4:7], 0 format:"
        assert encoding(line + name) == encoding(f"{line}{number}")
        assert encoding(line + name) is not None


def test_range_and_bad_accesses():
    memory = Memory()
    s = descriptor(memory, "32_32_32_32", "UINT", records=40)
    text = "buffer_load_format_xyzw v[0:3], v8, s[4:7], 0 offen"
    result = execute(
        text, v={8: [8 * (n % 8) for n in LANES], **dict.fromkeys(range(4), OLD)}, s=s, memory=memory.known
    )
    for n in LANES:
        at = 8 * (n % 8)
        wanted = [int.from_bytes(memory.before[at + 4 * i : at + 4 * i + 4], "little") for i in range(4)]
        assert [result.v(i)[n] for i in range(4)] == (wanted if at + 16 <= 40 else [0] * 4)
    execute(text.replace("load", "store"), v={8: 32}, s=s, memory=memory.known)
    assert memory.bytes.tobytes() == memory.before
    with pytest.raises(MemoryFault, match="16-byte access outside every known allocation") as fault:
        execute(
            text,
            v={8: [0] * 5 + [4096] * 59},
            s=descriptor(memory, "32_32_32_32", "UINT", records=1 << 20),
            memory=memory.known,
        )
    assert fault.value.where["lane"] == 5


def test_records_by_index():
    """Elements of 4 bytes in records of 12: the format is that of the descriptor, the index is checked."""
    memory = Memory()
    s = descriptor(memory, "8_8_8_8", "UINT", records=20)
    s[5] |= 12 << 16
    result = execute(
        "buffer_load_format_xyzw v[0:3], v8, s[4:7], 0 idxen offset:4", v={8: LANES}, s=s, memory=memory.known
    )
    for n in LANES:
        assert [result.v(i)[n] for i in range(4)] == (
            list(memory.before[12 * n + 4 : 12 * n + 8]) if n < 20 else [0] * 4
        )


@pytest.mark.parametrize(
    ("text", "word", "why"),
    [
        ("buffer_load_format_x v0, off, s[4:7], 0", 0, "buffer format INVALID"),
        ("buffer_load_format_x v0, off, s[4:7], 0", 4 << 15, "buffer format 32, UNORM: no such combination"),
        ("buffer_load_format_x v0, off, s[4:7], 0", 1 << 15 | 7 << 12, "buffer format 8, FLOAT: no such combination"),
        ("buffer_store_format_x v0, off, s[4:7], 0", 5 << 15 | 4 << 12, "16_16, UINT: 1 of 2 components are stored"),
        ("buffer_store_format_x v0, off, s[4:7], 0", 2 << 15 | 2 << 12, "16, USCALED: how numbers are converted"),
        ("tbuffer_load_format_x v0, off, s[4:7], 0 format:[BUF_FMT_8_UNORM]", 0, "not a format of gfx9"),
        ("tbuffer_load_format_x v0, off, s[4:7], 0 format:128", 0, "expected a number below 128"),
        ("buffer_load_format_x v0, off, s[4:7], 0 tfe", 0, "with lds or tfe"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(text, word, why):
    memory = Memory()
    with pytest.raises(UnimplementedInstruction, match=why):
        execute(text, s={**descriptor(memory, "8", "UINT"), 7: word}, memory=memory.known)


def test_descriptors_may_differ_between_wavefronts():
    memory, fields = Memory(), elements("8_8", 3)
    offsets = fill(memory, "8_8", fields)
    words = [descriptor(memory, "8_8", "UINT")[7], descriptor(memory, "16", "UINT")[7]]
    s = {**descriptor(memory, "8", "UINT"), 7: words}
    result = execute("buffer_load_format_x v0, v8, s[4:7], 0 offen", v={8: offsets}, s=s, memory=memory.known, waves=2)
    assert result.v(0) == [x for x, _ in fields] + [x | y << 8 for x, y in fields]


# -- watched modes -----------------------------------------------------------------------------------------------------


def program(memory, *lines, word=10 << 15 | 4 << 12 | 0o7654):
    return [
        *memory.prologue(),
        "s_mov_b32 s6, 4096",
        f"s_mov_b32 s7, {word:#x}",
        "v_mov_b32_e32 v8, 4",
        *lines,
        "s_endpgm",
    ]


LOAD, STORE = (
    "buffer_load_format_xyzw v[0:3], v8, s[4:7], 0 offen",
    "buffer_store_format_xyzw v[0:3], v8, s[4:7], 0 offen",
)
STORED = "global_store_dword v8, v2, s[4:5] offset:60"


def test_mode_check():
    memory = checking.Memory()
    memory.words[1] = 0x04030201
    checking.run(*program(memory, LOAD, "s_waitcnt vmcnt(0)", STORED), memory=memory)
    assert memory.words[16] == 3
    with pytest.raises(MissingWait):
        checking.run(*program(memory, LOAD, STORED), memory=memory)
    with pytest.raises(UndefinedValue, match="an undefined value is stored"):
        checking.run(*program(memory, STORE), memory=memory)
    with pytest.raises(UndefinedValue, match="the address depends on an undefined value"):
        checking.run(*program(memory, LOAD.replace("v8", "v9")), memory=memory)


def launched(memory, watch, lines, waves=1, lds=0):
    launch = Launch(decode(listing(*lines), watch=watch), (1, 1, 1), waves, lds, np.zeros(8, np.uint8), Allocations(),
                    [(memory.address, 4096, "memory")])  # fmt: skip
    Scheduler([[launch]], watch).run()


@pytest.mark.parametrize("seed", range(4))
def test_mode_weak(seed):
    """The converted value arrives in the registers when the load is performed, and is stored as converted."""
    memory = checking.Memory()
    memory.words[1] = 0x04030201
    lines = program(memory, LOAD, "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v8, 60", STORE, "v_mov_b32_e32 v8, 0x2000", LOAD,
                    "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v8, 64", STORE)  # fmt: skip
    launched(memory, Weak(Seeded(seed)), lines)
    assert memory.words[15] == 0x04030201
    assert memory.words[16] == 0, "out of range"


def test_mode_trace():
    """The log has the bytes of the element in memory, by format."""
    memory, watch = checking.Memory(), Trace()
    zeros = [f"v_mov_b32_e32 v{i}, 0" for i in range(4)]
    launched(memory, watch, program(memory, *zeros, STORE, LOAD, "s_waitcnt vmcnt(0)"))
    logged = [(a.kind, a.bytes, a.offset, a.instruction.split()[0]) for a in watch.accesses]
    assert logged == [
        ("store", 64 * 4, 4, "buffer_store_format_xyzw"), ("load", 64 * 4, 4, "buffer_load_format_xyzw"),
    ]  # fmt: skip


def test_mode_race():
    memory = checking.Memory()
    zeros = [f"v_mov_b32_e32 v{i}, 0" for i in range(4)]
    launched(memory, Race(), program(memory, *zeros, STORE))
    with pytest.raises(DataRace, match="buffer_store_format_xyzw"):
        launched(memory, Race(), program(memory, *zeros, STORE, LOAD), waves=2)
