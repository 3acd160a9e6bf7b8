"""Fingerprints on disk: the same as made anew, and made anew where the file is not what was written."""

import json

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator, kept
from harness.isa import fingerprint, kept_fingerprints
from harness.isa.flow.origin import Roots

ROOTS = Roots(frozenset({1}), frozenset())


@triton.jit
def copied(source, target):
    at = tl.arange(0, 64)
    tl.atomic_add(target + at, tl.load(source + at), scope="sys")


@pytest.fixture(scope="module")
def listing():
    device = emulator.activate()
    try:
        copied[(1,)](torch.ones(64), torch.zeros(64))
        (launch,) = device.drain_launches()
    finally:
        emulator.deactivate()
    return launch.listing


def never(*arguments):
    raise AssertionError("the fingerprint was made again")


def file_of(cache):
    (file,) = cache.glob("iris-harness-kept-*/fingerprints/*.json")
    return file


def test_a_fingerprint_on_disk_is_the_one_that_was_made(listing, tmp_path):
    made = kept_fingerprints.of(listing, "", ROOTS, tmp_path, fingerprint)
    assert made == fingerprint(listing, "", ROOTS)
    assert kept_fingerprints.of(listing, "", ROOTS, tmp_path, never) == made
    with pytest.raises(AssertionError, match="made again"):
        kept_fingerprints.of(listing, "", Roots(), tmp_path, never)
    folder = file_of(tmp_path).parent
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    assert kept.read(file_of(tmp_path)) is None, "another user may have written it"


def test_a_damaged_file_is_made_again(listing, tmp_path):
    made = kept_fingerprints.of(listing, "", ROOTS, tmp_path, fingerprint)
    file = file_of(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"atomic", b"stores"))
    assert kept_fingerprints.of(listing, "", ROOTS, tmp_path, fingerprint) == made


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain["accesses"][0].update(width="4"),
        lambda plain: plain["accesses"][0].pop("mnemonic"),
        lambda plain: plain.update(surprise=1),
        lambda plain: plain.update(accesses=7),
        lambda plain: plain["writebacks"].update({"sc0 sc1": "many"}),
    ],
)
def test_a_file_of_another_form_is_made_again(listing, tmp_path, change):
    made = kept_fingerprints.of(listing, "", ROOTS, tmp_path, fingerprint)
    file = file_of(tmp_path)
    plain = json.loads(kept.read(file))
    change(plain)
    kept.write(file, json.dumps(plain).encode())
    assert kept_fingerprints.of(listing, "", ROOTS, tmp_path, fingerprint) == made
