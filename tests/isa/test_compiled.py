"""Fingerprints of listings that Triton has just compiled for gfx942 (no GPU needed, about a second each)."""

import re
import sys
import types
from dataclasses import dataclass, replace

import pytest

from harness.isa import executed, fingerprint, remote_mismatch, remote_widths
from harness.isa.sources import current_file
from tests.isa import kernels, protocol_kernels


@pytest.mark.parametrize(("dtype", "remote"), [("fp16", {16: 1}), ("i32", {16: 2}), ("i64", {16: 4})])
def test_aligned_remote_stores_and_their_widths(dtype, remote):
    print_ = fingerprint(kernels.listing("put", dtype))
    assert print_.arch == "gfx942"
    assert remote_widths(print_, "store") == remote
    assert print_.widths("local", "store") == {}
    assert print_.widths("local", "load") == remote, "the source is loaded as wide as it is stored"
    assert print_.widths("remote", "load") == {}


def test_a_mask_of_unknown_alignment_narrows_the_stores_and_is_named():
    print_ = fingerprint(kernels.listing("put", "fp16", aligned=False))
    assert remote_widths(print_, "store") == {2: 8}
    mismatch = remote_mismatch(print_, "store", 16)
    assert "8 x 2 bytes wide, wanted 16 only" in mismatch
    assert "kernels.py:34" in mismatch


def test_wide_stores_are_no_mismatch_and_absent_ones_are():
    print_ = fingerprint(kernels.listing("put", "fp16"))
    assert remote_mismatch(print_, "store", 16) is None
    assert remote_mismatch(print_, "atomic", 4) == "there is no remote atomic"


def test_only_the_places_of_accesses_with_another_width_are_named():
    print_ = fingerprint(kernels.listing("put", "fp16", aligned=False))
    narrow = next(each for each in print_.accesses if (each.kind, each.where) == ("store", "remote"))
    others = (
        replace(narrow, width=16, source="wide"), replace(narrow, kind="load", source="load"),
        replace(narrow, where="local", source="local"), replace(narrow, space="scalar", source="scalar"),
    )  # fmt: skip
    mismatch = remote_mismatch(replace(print_, accesses=(narrow, *others)), "store", 16)
    assert mismatch == f"remote store accesses are 8 x 2 bytes wide, wanted 16 only at {narrow.source}"


def test_an_access_whose_address_cannot_be_followed_is_a_mismatch():
    print_ = fingerprint(kernels.listing("put", "fp16"))
    further = replace(print_.accesses[0], kind="store", where="unattributed", space="global", width=2, count=3)
    mismatch = remote_mismatch(replace(print_, accesses=(*print_.accesses, further)), "store", 16)
    assert mismatch == "3 x 2 store accesses may be local or remote: their addresses cannot be followed"


def test_a_poll_is_no_payload():
    text = protocol_kernels.listing(protocol_kernels.exchange, "gfx942")
    print_ = fingerprint(text)
    assert remote_widths(print_, "load") == {4: 2, 16: 4}, "the polls are 4 bytes wide"
    assert remote_mismatch(print_, "load", 16) is None
    assert "4 x 16 bytes wide, wanted 4 only" in remote_mismatch(print_, "load", 4)


def test_the_chain_names_the_line_of_the_access_and_its_caller():
    [store] = [a for a in fingerprint(kernels.listing("put")).accesses if a.where == "remote"]
    inner, outer = store.source.split(" @ ")
    assert inner.endswith("tests/isa/kernels.py:34:" + inner.rpartition(":")[2])
    assert "tests/isa/kernels.py:45:" in outer


def test_system_scope_atomics_and_their_fences():
    print_ = fingerprint(kernels.listing("add"))
    assert remote_widths(print_, "atomic") == {4: 8}
    assert print_.writebacks == {"sc0 sc1": 1}
    assert print_.invalidates == {"sc0 sc1": 1}
    assert {a.bits for a in print_.accesses if a.kind == "atomic"} == {("sc0", "sc1")}
    assert remote_mismatch(print_, "atomic", 4) is None, "they are what is measured, and no flags"
    assert print_.widths("local", "store") == {4: 8}
    assert print_.waits > 0


def test_resources_are_those_of_the_metadata():
    print_ = fingerprint(kernels.listing("put"))
    assert 0 < print_.vgprs < 64
    assert 0 < print_.sgprs < 104
    assert (print_.vgpr_spills, print_.sgpr_spills, print_.scratch, print_.agprs) == (0, 0, 0, 0)


def test_the_hash_is_of_the_code_alone():
    text = kernels.listing("put", "fp16")
    renamed = text.replace("kernels.py", "moved.py").replace(".LBB0_", ".LBB7_").replace("\n\t.loc", "\n\t ; x\n\t.loc")
    assert fingerprint(renamed).sha256 == fingerprint(text).sha256
    assert fingerprint(kernels.listing("put", "i32")).sha256 != fingerprint(text).sha256
    changed = text.replace("global_store_dwordx4", "global_store_dwordx2")
    assert fingerprint(changed).sha256 != fingerprint(text).sha256


@dataclass(frozen=True)
class Access:
    kind: str
    width: int
    where: str
    executions: int
    lanes: int
    bytes: int


@dataclass(frozen=True)
class Launch:
    accesses: tuple


def test_executed_counts_follow_the_addresses():
    launch = Launch(
        (
            Access("store", 16, "peer", 4, 256, 4096),
            Access("store", 16, "peer", 3, 10, 160),
            Access("load", 16, "local", 4, 256, 4096),
        ),
    )
    total = executed([launch, launch])
    assert remote_widths(total, "store") == {16: 14}
    assert total.widths("local", "load") == {16: 8}
    assert remote_mismatch(total, "store", 16) is None
    assert type(total).from_json(total.to_json()) == total


def test_a_narrow_access_to_a_peer_cannot_hide():
    total = executed([Launch((Access("load", 2, "peer", 1, 64, 128), Access("load", 16, "local", 9, 64, 1024)))])
    assert "1 x 2 bytes wide, wanted 16" in remote_mismatch(total, "load", 16)


def test_a_listing_from_another_checkout_is_read_with_the_source_at_hand():
    text = kernels.listing("put", "fp16")
    # Whatever checkout it came from: Triton's cache may already have given us another one's.
    moved = re.sub(r'"[^"]*/tests/isa"', '"/elsewhere/checkout/tests/isa"', text)
    assert moved != text
    assert fingerprint(moved) == fingerprint(text)


def test_a_checkout_that_is_gone_is_found_by_folder_and_name_but_never_by_name_alone(monkeypatch, tmp_path):
    """Programs of the examples are imported without a package: ``gluon/work.py`` is the module ``work``."""
    module = types.ModuleType("work")
    module.__file__ = str(tmp_path / "gluon" / "work.py")
    monkeypatch.setitem(sys.modules, "work", module)
    assert current_file("/gone/examples/gluon/work.py") == module.__file__
    assert current_file("/gone/examples/triton/work.py") == "/gone/examples/triton/work.py"
