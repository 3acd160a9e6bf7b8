"""``IrisDeviceCtx`` compiled for gfx942: every method and dtype, and how wide the remote accesses are. No device."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest
import triton

from harness.isa import remote_mismatch, remote_widths
from iris_under_test.gluon import IrisDeviceCtx
from tests.iris import kernels

DTYPES = ["fp16", "bf16", "fp32", "fp64", "i8", "i16", "i32", "i64", "i1"]
REMOTE_KINDS = {"load": ["load"], "store": ["store"], "get": ["load"], "put": ["store"], "copy": ["load"]}
FLOATS, INTS = ["fp16", "bf16", "fp32", "fp64"], ["i32", "i64"]
ATOMIC_DTYPES = {
    "add": FLOATS + INTS, "sub": FLOATS + INTS, "xchg": ["fp32", "fp64", *INTS], "min": ["fp32", "fp64", *INTS],
    "max": ["fp32", "fp64", *INTS], "and": INTS, "or": INTS, "xor": INTS, "cas": INTS,
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", REMOTE_KINDS)
def test_remote_accesses_are_16_bytes_wide(op, dtype):
    print_of = kernels.rma(op, dtype)
    for kind in REMOTE_KINDS[op]:
        assert remote_mismatch(print_of, kind, 16) is None, f"{op} {dtype}: {print_of.accesses}"
    if op == "copy":  # to the caller's own heap, in these kernels
        assert set(print_of.widths("local", "store")) == {16}, f"{dtype}: {print_of.accesses}"
    assert print_of.vgpr_spills == 0


@pytest.mark.parametrize("op", REMOTE_KINDS)
def test_unaligned_count_still_compiles_with_remote_accesses(op):
    for kind in REMOTE_KINDS[op]:
        assert set(remote_widths(kernels.rma(op, "fp16", aligned=False), kind)) == {2}, op


def test_scalar_pointers_compile():
    for dtype in DTYPES:
        widths = remote_widths(kernels.rma("scalar", dtype), "store")
        assert widths == {kernels.ITEM_SIZES[dtype]: 1}, f"{dtype}: {widths}"


@pytest.mark.parametrize("modifier", ["", ".ca", ".cg", ".cv"])
def test_load_modifiers_reach_the_remote_load(modifier):
    wanted = {"": (), ".ca": (), ".cg": ("nt",), ".cv": ("sc0", "sc1")}[modifier]
    for op in ("load", "get"):
        bits = {a.bits for a in kernels.rma(op, "fp32", load_cache=modifier).accesses if a.where == "remote"}
        assert bits == {wanted}, f"{op} {modifier!r}: {bits}"


@pytest.mark.parametrize("modifier", ["", ".wb", ".cg", ".cs", ".wt"])
def test_store_modifiers_reach_the_remote_store(modifier):
    wanted = {"": (), ".wb": (), ".cg": (), ".cs": ("nt",), ".wt": ("sc0", "sc1")}[modifier]
    for op in ("store", "put"):
        bits = {a.bits for a in kernels.rma(op, "fp32", store_cache=modifier).accesses if a.where == "remote"}
        assert bits == {wanted}, f"{op} {modifier!r}: {bits}"


@pytest.mark.long
@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, dtypes in ATOMIC_DTYPES.items() for dtype in dtypes])
def test_atomics_compile_to_remote_atomics(op, dtype):
    actual = remote_widths(kernels.atomic(op, dtype, "acq_rel", "sys"), "atomic")
    # A 2-byte element is exchanged as part of the aligned 4 bytes around it.
    assert set(actual) == {max(4, kernels.ITEM_SIZES[dtype])}, f"{op} {dtype}: {actual}"


@pytest.mark.parametrize("op", ["add", "sub", "xchg", "cas"])
@pytest.mark.parametrize("dtype", INTS)
def test_integer_atomics_at_system_scope_are_native(op, dtype):
    accesses = kernels.atomic(op, dtype, "relaxed", "sys").accesses
    mnemonics = {a.mnemonic for a in accesses if a.where == "remote"}
    name = {"add": "add", "sub": "add", "xchg": "swap", "cas": "cmpswap"}[op]
    assert mnemonics == {f"global_atomic_{name}" + ("_x2" if dtype == "i64" else "")}


def test_sem_and_scope_are_forwarded():
    relaxed = kernels.atomic("add", "i32", "relaxed", "sys")
    assert (relaxed.writebacks, relaxed.invalidates) == ({}, {})
    assert kernels.atomic("add", "i32", "release", "sys").writebacks == {"sc0 sc1": 1}
    assert kernels.atomic("add", "i32", "acquire", "sys").invalidates == {"sc0 sc1": 1}
    agent = kernels.atomic("add", "i32", "acq_rel", "gpu")
    assert (agent.writebacks, agent.invalidates) == ({"sc1": 1}, {"sc1": 1})
    # None means Triton's defaults.
    assert kernels.atomic("add", "i32").sha256 == agent.sha256


@pytest.mark.parametrize("dtype", ["i8", "i16"])
def test_atomics_on_narrow_integers_are_refused(dtype, capfd):
    with pytest.raises(triton.CompilationError):
        kernels.atomic("add", dtype)


def test_cache_key_follows_the_source(tmp_path):
    """Triton's disk cache must not serve a binary of another version of the methods."""
    original = sys.modules[IrisDeviceCtx.__module__]
    source = pathlib.Path(original.__file__).read_text(encoding="utf-8")
    keys = set()
    for number, text in enumerate([source, source.replace("return gl.atomic_xchg(", "return gl.atomic_add(")]):
        path = tmp_path / f"edited{number}.py"
        path.write_text(text, encoding="utf-8")
        name = f"{original.__package__}.edited{number}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            keys.add(module.IrisDeviceCtx.cache_key)
        finally:
            del sys.modules[name]
    assert len(keys) == 2
