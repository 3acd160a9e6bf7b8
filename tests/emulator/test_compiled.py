"""Native code of ALU instructions against the interpreter: the same registers, bit for bit, except for a NaN's payload.

Both execute the same op functions (on symbolic and on NumPy arrays), so these tests cover the lowering of NumPy
operations to LLVM, the registers, and masks. ``single.execute`` compares all other instructions.
"""

import itertools
import random
import re

import numpy as np
import pytest
from triton import knobs

from harness import kept
from harness.emulator.driver import translated as scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import execute, record
from harness.emulator.operations import TABLE
from harness.emulator.operations.table import Op
from harness.emulator.program.compiled import forms, objects, runs, translation, ufuncs
from harness.emulator.program.decode import Context, decode
from harness.emulator.wavefront.state import EXEC
from tests.emulator import edges, native
from tests.emulator.single import listing, program

WAVES = 8
# One wavefront with no active lane, one with all lanes active; the others with some.
MASKS = [0, (1 << 64) - 1, 0xAAAA5555F00FA5C3, 1, 1 << 63, 0xFFFF, 0x00FF00FF00FF00FF, (1 << 64) - 2]
_salts = itertools.count()


def ops():
    return {n: op for n, op in TABLE.items() if isinstance(op, Op)}


def code_of(op):
    return program(instruction(op), arch=op.name.partition("@")[2] or "gfx942")


def instruction(op):
    """Return the instruction's text, with results in registers 50.., sources in 2, 4, 6, masks in s[42:43]."""
    operands, sources = [], iter((2, 4, 6))
    space = "v" if op.klass == "valu" else "s"
    for position, kind in enumerate(op.results + op.sources):
        is_result = position < len(op.results)
        if kind in ("scc", "exec", "vcc", "mode") or kind[0] in "@%":
            continue
        if kind == "mask":
            operands.append("s[40:41]" if is_result else "s[42:43]")
        elif kind in ("imm", "uimm"):
            operands.append("0x8765")
        else:
            register = 50 if is_result else next(sources)
            wide = kind.endswith("64") or (op.packed and kind.endswith("32"))
            operands.append(f"{space}[{register}:{register + 1}]" if wide else f"{space}{register}")
    return f"{op.name.partition('@')[0]} {', '.join(operands)}"


def wavefronts(code, masks):
    launch = Launch(code, (1, 1, 1), len(masks), 0, np.zeros(8, np.uint8), Allocations())
    wf = launch.start(0, 1).wavefronts
    wf.s[:, EXEC : EXEC + 2] = np.array(masks, np.uint64).view(np.uint32).reshape(-1, 2)
    wf.refresh_exec()
    return wf


def fill(wf, op, seed):
    """Fill registers with random values, and operands with edge values, one combination per lane (or wavefront)."""
    some = np.random.default_rng(seed)
    wf.v[:] = some.integers(0, 1 << 32, wf.v.shape, np.uint32)
    wf.s[:, :EXEC] = some.integers(0, 1 << 32, (len(wf), EXEC), np.uint32)
    wf.scc[:] = some.integers(0, 2, len(wf))
    kinds = [k.lstrip("@") for k in op.sources]
    whole = ("exec", "uimm", "mode")
    cases = edges.combinations(["u64" if k in whole or k[0] == "%" else k for k in kinds], op.name)
    random.Random(op.name).shuffle(cases)
    count = len(wf) if op.klass == "salu" else wf.v[0, :, :, 0].size
    cases = (cases * count)[:count]
    sources = iter((2, 4, 6))
    for position, kind in enumerate(op.sources):
        if kind in ("scc", "exec", "vcc", "mode", "mask", "imm", "uimm") or kind[0] == "%":
            continue
        register = 50 if kind[0] == "@" else next(sources)
        column = np.array([case[position] for case in cases], np.uint64)
        for half in range(2 if kind.endswith("64") else 1):
            words = (column >> np.uint64(32 * half)).astype(np.uint32)
            if op.klass == "salu":
                wf.s[:, register + half] = words
            else:
                target = wf.v[register >> 1, :, :, half]
                target[...] = words.reshape(target.shape)
    return wf


def interpret(code, wf):
    with np.errstate(all="ignore"):
        for segment in code.segments:
            for step in segment.steps:
                step(wf)
    return wf


def run_native(code, wf):
    """Return the registers after native code, and the instructions that it left to the interpreter."""
    launch = Launch(code, (1, 1, 1), len(wf), 0, np.zeros(8, np.uint8), Allocations())
    run = native.Native(launch, wf)
    run.run()
    return run.result()[0], run.interpreted


def compare(op, masks):
    """Return None if the op has no native form, otherwise the differences of the two executions."""
    code = code_of(op)
    start = fill(wavefronts(code, masks), op, 7)
    got, interpreted = run_native(code, start)
    return None if interpreted else native.differences(interpret(code, start), got)


@pytest.mark.parametrize("name", sorted(ops()))
def test_opcode(name):
    for masks in (MASKS, [(1 << 64) - 1] * WAVES):
        assert not compare(ops()[name], masks)


def test_most_opcodes_have_a_native_form():
    interpreted = []
    for name, op in ops().items():
        form, _ = forms.form_of(*code_and_context(op))
        interpreted += [name] * (form.emit() is None)
    assert len(interpreted) < 0.1 * len(ops()), interpreted
    assert not [
        n
        for n in interpreted
        if n.startswith(("s_a", "s_cmp", "v_cmp", "v_cndmask", "v_add", "v_mul", "v_fma", "v_exp"))
    ]


def code_and_context(op):
    code = code_of(op)
    return code.listing.instructions[0], Context(code.listing.arch, 64, [])


@pytest.mark.parametrize(
    ("ufunc", "wrong", "op"),
    [
        (np.add, np.subtract, "v_add_u32"),
        (np.right_shift, np.left_shift, "v_ashrrev_i32"),
        (np.less, np.less_equal, "v_cmp_lt_f32"),
        (np.fmin, np.fmax, "v_min_f32"),
        (np.isnan, np.isinf, "v_max_f64"),
    ],
)
def test_a_wrong_lowering_is_found(monkeypatch, cache, ufunc, wrong, op):
    monkeypatch.setitem(ufuncs.LOWERINGS, ufunc, ufuncs.LOWERINGS[wrong])
    assert compare(ops()[op], MASKS)


@pytest.mark.parametrize("offset", [2, -2])
def test_a_wrong_register_is_found(monkeypatch, cache, offset):
    right = record.vector_offset
    monkeypatch.setattr(record, "vector_offset", lambda register: right(register + offset * (register == 4)))
    assert compare(ops()["v_sub_u32"], MASKS)


# -- many instructions in one run --------------------------------------------------------------------------------------

# v: integers, f: float32, h: float16, in disjoint registers, because the payloads of NaNs are not compared. p: an
# aligned pair of integers; s, S: a scalar and a pair; m: a lane mask.
TEMPLATES = """
v_add_u32_e32 v, v, v / v_sub_u32_e32 v, s, v / v_mul_lo_u32 v, v, v / v_mad_u32_u24 v, v, s, v / v_mul_hi_i32 v, v, v
v_lshl_add_u32 v, v, 3, v / v_and_or_b32 v, v, s, v / v_add3_u32 v, v, v, 7 / v_lshlrev_b32_e32 v, 5, v
v_lshrrev_b32_e32 v, v, v / v_ashrrev_i32_e32 v, v, v / v_bfe_u32 v, v, 4, 9 / v_perm_b32 v, v, v, s
v_not_b32_e32 v, v
v_lshl_add_u64 p, p, 3, S / v_lshlrev_b64 p, 3, p / v_mad_u64_u32 p, m, v, v, p / v_mov_b64_e32 p, p
v_add_co_u32_e32 v, vcc, v, v / v_addc_co_u32_e32 v, vcc, v, v, vcc / v_subb_co_u32_e32 v, vcc, v, v, vcc
v_add_u16_e32 v, v, v / v_lshlrev_b16_e32 v, 2, v / v_mad_u16 v, v, v, v op_sel:[0,1,0,1] / v_max_i16_e32 v, v, v
v_cmp_lt_u32_e32 vcc, v, v / v_cmp_ne_u64_e64 m, p, p / v_cmp_gt_i16_e32 vcc, v, v / v_cmp_lt_f32_e64 m, f, f
v_cmp_class_f32_e64 m, f, v / v_cndmask_b32_e32 v, v, v, vcc / v_cndmask_b32_e64 v, v, 1, m
v_add_u32_e64 v, v, v clamp
v_add_f32_e32 f, f, f / v_mul_f32_e64 f, -f, |f| / v_fma_f32 f, f, -f, f / v_fmac_f32_e32 f, f, f
v_max_f32_e32 f, f, f
v_add_f32_e64 f, f, f clamp mul:2 / v_rcp_f32_e32 f, f / v_exp_f32_e32 f, f / v_cvt_f32_i32_e32 f, v
v_rndne_f32_e32 f, f
v_cvt_u32_f32_e32 v, f / v_cvt_f16_f32_e32 h, f / v_cvt_f32_f16_e32 f, h / v_add_f16_e32 h, h, h
v_fma_f16 h, h, h, h
v_pk_add_f16 h, h, h op_sel:[0,1] op_sel_hi:[1,0] / v_pk_fma_f16 h, h, h, h neg_lo:[1,0,0] / v_pk_mul_lo_u16 v, v, v
v_fma_mix_f32 f, f, h, h op_sel_hi:[0,1,1] op_sel:[0,1,0] / v_fma_mixlo_f16 h, f, h, f op_sel_hi:[0,1,0]
v_or_b32_sdwa v, v, v dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 src1_sel:WORD_0
v_add_u32_sdwa v, sext(v), v dst_sel:BYTE_2 dst_unused:UNUSED_SEXT src0_sel:BYTE_3 src1_sel:DWORD
v_mov_b32_dpp v, v row_shr:3 row_mask:0xf bank_mask:0xf bound_ctrl:0
v_add_u32_dpp v, v, v quad_perm:[1,0,3,2] row_mask:0xa bank_mask:0xf
v_max_i32_dpp v, v, v row_bcast:15 row_mask:0xa bank_mask:0x7
v_min_u32_dpp v, v, v row_mirror row_mask:0xf bank_mask:0xf
v_readfirstlane_b32 s, v / v_readlane_b32 s, v, 17 / v_readlane_b32 s, v, s / v_mbcnt_lo_u32_b32 v, s, v
v_swap_b32 v, v
s_add_u32 s, s, s / s_addc_u32 s, s, s / s_and_b64 m, m, vcc / s_andn2_b64 vcc, m, exec / s_lshl_b64 S, S, s
s_mul_i32 s, s, s
s_cmp_lt_i32 s, s / s_cselect_b32 s, s, s / s_cselect_b64 m, m, m / s_bcnt1_i32_b64 s, m / s_bfe_u32 s, s, 0x80008
s_not_b32 s, s
s_xor_b64 vcc, vcc, m / s_ashr_i32 s, s, 3 / s_min_u32 s, s, s / s_mov_b32 s, 0x12345678 / s_movk_i32 s, 0x8001
"""
ENDINGS = ["s_and_saveexec_b64 s[30:31], vcc", "s_mov_b64 exec, s[40:41]", "v_cmpx_lt_u32_e32 vcc, v0, v1", "s_nop 0"]
_POOLS = {
    "v": [f"v{i}" for i in range(10)],
    "p": [f"v[{i}:{i + 1}]" for i in range(0, 10, 2)],
    "f": [f"v{i}" for i in range(10, 20)],
    "h": [f"v{i}" for i in range(20, 26)],
    "s": [f"s{i}" for i in range(2, 10)],
    "S": [f"s[{i}:{i + 1}]" for i in range(2, 10, 2)],
    "m": ["s[40:41]", "s[42:43]", "vcc"],
}


def random_code(some, length):
    templates = [t.strip() for line in TEMPLATES.strip().splitlines() for t in line.split(" / ")]
    place = re.compile(r"(?<![\w\[])([vpfhsSm])(?![\w:\[])")
    lines = []
    for _ in range(length):
        opcode, _, operands = some.choice(templates).partition(" ")
        lines.append(f"{opcode} {place.sub(lambda match: some.choice(_POOLS[match[1]]), operands)}")
    return [*lines, some.choice(ENDINGS)]


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("seed", range(24))
def test_random_runs(seed, runs, monkeypatch):
    if not runs:
        monkeypatch.setattr(native, "_translations", {})
        monkeypatch.setattr(translation.Translation, "use_runs", lambda translation: False)
    assert not random_differences(seed)


def random_differences(seed):
    some = random.Random(seed)
    code = program(*random_code(some, 25))
    start = wavefronts(code, MASKS if seed % 4 else [(1 << 64) - 1] * WAVES)
    numbers = np.random.default_rng(seed)
    start.v[:] = numbers.integers(0, 1 << 32, start.v.shape, np.uint32)
    start.s[:, :EXEC] = numbers.integers(0, 1 << 32, (WAVES, EXEC), np.uint32)
    start.scc[:] = numbers.integers(0, 2, WAVES)
    got, interpreted = run_native(code, start)
    assert not interpreted
    return native.differences(interpret(code, start), got)


def stale_mask(registers, register):
    return super(runs.RunRegisters, registers).mask(register)


def scalar_of_a_part(registers, register, lanes):
    return super(runs.RunRegisters, registers).word(register, lanes)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("mask", stale_mask), ("word", scalar_of_a_part)],
)
def test_a_planted_fault_in_runs_is_found(name, wrong, monkeypatch, cache):
    """Reading a lane mask as it was before the run, and a scalar before the comparison that writes it."""
    monkeypatch.setattr(runs.RunRegisters, name, wrong)
    salted = f"{runs.objects.version()[:8]}_{name}"
    monkeypatch.setattr(runs.Runs, "_function", lambda self, first: f"{self.name}_{first}_{salted}")
    assert any(random_differences(seed) for seed in range(24))


# -- when a program is translated, and the cache on disk ---------------------------------------------------------------

CODE = ["v_add_u32_e32 v0, v1, v2", "v_exp_f32_e32 v3, v0", "s_and_saveexec_b64 s[40:41], vcc", "v_mov_b32_e32 v4, v0",
        "v_add_u32_e32 v9, s3, v2", "v_add_u32_e32 v8, v3, v2", "s_endpgm"]  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of machine code, on disk and in the process; functions loaded before keep their names."""
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    monkeypatch.setattr(native, "_translations", {})
    salt = next(_salts)
    name = forms.Form.name.func
    monkeypatch.setattr(forms.Form, "name", property(lambda form: f"{name(form)}_{salt}"))
    forms._form_of.cache_clear()
    yield kept.file_in(tmp_path, "machine-code", "name").parent
    forms._form_of.cache_clear()


def translated(code):
    translator = translation.Translator(code)
    missing = translator.missing()
    return translator.finish(), missing


def test_forms_are_compiled_once_for_all_registers_and_programs(cache, monkeypatch):
    _, missing = translated(decode(listing(*CODE)))
    assert missing == 5  # two forms of v_add_u32: of vector registers, and with a scalar one
    assert len(list(cache.iterdir())) == missing
    _, missing = translated(decode(listing("v_add_u32_e32 v6, v7, v8", "s_endpgm")))
    assert missing == 0
    # The next process loads them from the disk.
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    monkeypatch.setattr(forms.Form, "emit", None)
    monkeypatch.setattr(objects, "load", lambda codes: dict.fromkeys(codes, 8))
    assert translated(decode(listing(*CODE)))[1] == 0


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[: len(data) // 2], lambda data: b""])
def test_a_damaged_file_is_not_used(cache, monkeypatch, damage):
    translated(decode(listing(*CODE)))
    whole = {file: file.read_bytes() for file in cache.iterdir()}
    for file, data in whole.items():
        file.write_bytes(damage(data))
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    monkeypatch.setattr(objects, "load", lambda codes: dict.fromkeys(codes, 8))
    assert translated(decode(listing(*CODE)))[1] == len(whole)
    assert {file: file.read_bytes() for file in cache.iterdir()} == whole


def test_code_of_another_source_or_processor_is_not_used(cache, monkeypatch):
    translated(decode(listing(*CODE)))
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    monkeypatch.setattr(objects, "version", lambda: "another")
    assert translation.Translator(decode(listing(*CODE))).missing() == 5


def test_a_cache_that_cannot_be_written_is_no_error(cache):
    cache.parent.write_text("a file where the folder should be")
    done, _ = translated(decode(listing(*CODE)))
    assert (done.code[:-1, 0] != execute.STOP).all()


def launch_of(code, groups=1):
    return Launch(code, (groups, 1, 1), 1, 0, np.zeros(8, np.uint8), Allocations())


def test_a_program_is_translated_when_interpreting_it_costs_as_much(cache):
    code = decode(listing(*CODE))
    assert scheduler.translation_of(launch_of(code)) is None
    assert not cache.exists()
    launches = 1
    while scheduler.translation_of(launch_of(code)) is None:
        launches += 1
    steps = sum(len(segment.steps) for segment in code.segments)
    assert launches * steps * scheduler.INTERPRETING_STEP <= 5 * scheduler.COMPILING_FORM
    assert launches * steps * 2 * scheduler.INTERPRETING_STEP >= 5 * scheduler.COMPILING_FORM
    # A grid that is large enough is translated at its first launch.
    assert scheduler.translation_of(launch_of(decode(listing(*CODE)), 100_000)) is not None


def test_an_instruction_that_fails_in_the_interpreter_is_named():
    def broken(wf):
        raise ValueError("broken")

    code = decode(listing(*CODE))
    broken.native = None
    code.segments[0].steps[1] = broken
    done = translation.Translator(code).finish()
    done.code[2, 0] = execute.STOP
    with pytest.raises(UnimplementedInstruction, match="v_exp_f32_e32 v3, v0"):
        scheduler.TranslatedScheduler(launch_of(code), done).run()
