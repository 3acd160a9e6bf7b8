"""``DeviceContext`` and the functional form compiled for gfx942, gfx950 and sm_90. No device."""

from __future__ import annotations

import importlib
import pathlib
import shutil
import sys

import pytest
import triton

import iris_under_test as iris
from harness.isa import remote_mismatch, remote_widths
from iris_under_test.device import triton as functional
from iris_under_test.device.triton.context import DeviceContext
from tests.iris import kernels, triton_kernels
from tests.iris.test_device_context import ATOMIC_DTYPES, DTYPES, INTS, REMOTE_KINDS

FORMS = pytest.mark.parametrize("form", triton_kernels.FORMS)


@pytest.mark.long
@FORMS
@pytest.mark.parametrize("op", REMOTE_KINDS)
@pytest.mark.parametrize(
    ("target", "dtype"),
    [*(("gfx942", dtype) for dtype in DTYPES), ("gfx950", "fp16"), ("sm_90", "fp16"), ("sm_90", "i8")],
)
def test_remote_accesses_are_16_bytes_wide(form, op, target, dtype):
    print_of = triton_kernels.rma(form, op, dtype, target)
    for kind in REMOTE_KINDS[op]:
        assert remote_mismatch(print_of, kind, 16) is None, f"{op} {dtype}: {print_of.accesses}"
    if op == "copy":  # to the caller's own heap, in these kernels
        assert set(print_of.widths("local", "store")) == {16}, f"{dtype}: {print_of.accesses}"
    assert print_of.vgpr_spills in (0, None)


@FORMS
@pytest.mark.parametrize("op", REMOTE_KINDS)
def test_remote_accesses_never_assume_32_bits_between_heaps(form, op):
    """A buffer access has a 32-bit offset from an address that all lanes share."""
    accesses = triton_kernels.rma(form, op, "fp16").accesses
    remote = {a.mnemonic for a in accesses if a.where == "remote" and a.space != "scalar"}
    assert remote, accesses
    assert all(name.startswith("global_") for name in remote), remote


@pytest.mark.long
@FORMS
@pytest.mark.parametrize("op", REMOTE_KINDS)
@pytest.mark.parametrize("target", ["gfx942", "sm_90"])
def test_hint_makes_pointers_of_unknown_alignment_wide(form, op, target):
    unknown = ("context", "n")
    for kind in REMOTE_KINDS[op]:
        narrow = triton_kernels.rma(form, op, "fp16", target, unknown)
        assert set(remote_widths(narrow, kind)) == {2}, narrow.accesses
        wide = triton_kernels.rma(form, op, "fp16", target, unknown, 16)
        assert remote_mismatch(wide, kind, 16) is None, wide.accesses


def test_hint_of_a_tile_has_one_number_per_dimension():
    assert set(remote_widths(triton_kernels.tile(False), "store")) == {2}
    assert remote_mismatch(triton_kernels.tile(True), "store", 16) is None


@FORMS
def test_scalar_pointers_compile(form):
    for dtype in DTYPES:
        widths = remote_widths(triton_kernels.rma(form, "scalar", dtype), "store")
        assert widths == {kernels.ITEM_SIZES[dtype]: 1}, f"{dtype}: {widths}"


@pytest.mark.long
@FORMS
@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, dtypes in ATOMIC_DTYPES.items() for dtype in dtypes])
def test_atomics_compile_to_remote_atomics(form, op, dtype):
    actual = remote_widths(triton_kernels.atomic(form, op, dtype, "acq_rel", "sys"), "atomic")
    # A 2-byte element is exchanged as part of the aligned 4 bytes around it.
    assert set(actual) == {max(4, kernels.ITEM_SIZES[dtype])}, f"{op} {dtype}: {actual}"


@pytest.mark.long
@FORMS
@pytest.mark.parametrize("op", ["add", "sub", "xchg", "cas"])
@pytest.mark.parametrize("dtype", INTS)
def test_integer_atomics_at_system_scope_are_native(form, op, dtype):
    accesses = triton_kernels.atomic(form, op, dtype, "relaxed", "sys").accesses
    mnemonics = {a.mnemonic for a in accesses if a.where == "remote"}
    name = {"add": "add", "sub": "add", "xchg": "swap", "cas": "cmpswap"}[op]
    assert mnemonics == {f"global_atomic_{name}" + ("_x2" if dtype == "i64" else "")}


def test_both_forms_are_the_same_code():
    """The method adds nothing to the function."""
    for op in REMOTE_KINDS:
        prints = [triton_kernels.rma(form, op, "fp16") for form in triton_kernels.FORMS]
        accesses = [[(a.mnemonic, a.bits, a.where, a.count) for a in print_of.accesses] for print_of in prints]
        assert accesses[0] == accesses[1], op


def test_a_rank_that_is_no_constexpr_is_refused(capfd):
    types = {"context": "*i64", "rank": "i32"}
    with pytest.raises(triton.CompilationError) as caught:
        triton_kernels.compile_for("gfx942", triton_kernels.runtime_rank_kernel, types, {}, ())
    # The kernel's error, which was caused by that of ``initialize``.
    assert "rank and world_size must be tl.constexpr" in str(caught.value.__cause__)


def test_cache_key_follows_what_methods_call(tmp_path, monkeypatch):
    """Triton's disk cache must not serve a binary of another version of the functions behind the methods."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = pathlib.Path(functional.__file__).parent
    keys = set()
    for name, edit in (("same", "tl.atomic_xchg("), ("edited", "tl.atomic_add(")):
        shutil.copytree(folder, tmp_path / name)
        ops = tmp_path / name / "ops.py"
        ops.write_text(ops.read_text(encoding="utf-8").replace("tl.atomic_xchg(", edit), encoding="utf-8")
        keys.add(importlib.import_module(f"{name}.context").DeviceContext.cache_key)
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
    assert len(keys) == 2


def test_the_package_offers_the_functions_and_the_context():
    """Their parameters are those of the requirement DEVICE-SIGNATURE-001."""
    for name in ("load", "store", "get", "put", "copy", *(f"atomic_{op}" for op in ATOMIC_DTYPES if op != "sub")):
        assert getattr(iris, name) is getattr(functional, name)
    assert not hasattr(iris, "atomic_sub")
    assert iris.DeviceContext is DeviceContext
