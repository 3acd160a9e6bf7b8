"""Listings for the report are those of Triton's cache, as far as it has them and a page can hold them."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from command_line import kernel_cache, kernel_listings
from harness.evidence import read
from reports import render_html
from tests.evidence import samples

TEXT = '\t.amdgcn_target "gfx942"\n\ts_endpgm\n'


@pytest.fixture
def evidence(tmp_path, monkeypatch):
    """A run of one kernel, whose listing is in the cache."""
    monkeypatch.setattr(kernel_cache, "folder", lambda: tmp_path / "cache")
    entry = tmp_path / "cache" / kernel_cache.key_of(samples.KERNEL)
    entry.mkdir(parents=True)
    (entry / "put_kernel.amdgcn").write_text(TEXT)
    records = samples.green()
    sha256 = hashlib.sha256(TEXT.encode()).hexdigest()
    records[2] = dataclasses.replace(samples.kernel(), listing_sha256=sha256)
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def test_the_listing_of_a_kernel_is_on_the_page(evidence):
    listings = kernel_listings.listings_of(evidence)
    assert listings == {samples.KERNEL: TEXT}
    assert "s_endpgm" in render_html(evidence, listings)


def test_a_listing_that_changed_is_not_shown(evidence, tmp_path):
    [file] = (tmp_path / "cache").rglob("*.amdgcn")
    file.write_text(TEXT + "; changed\n")
    assert kernel_listings.listings_of(evidence) == {}


def test_a_cache_without_the_kernel_or_a_strange_hash_is_no_error(evidence, tmp_path):
    kernel = evidence.kernels.pop(samples.KERNEL)
    for hash_ in ("0" * 64, "../../etc", "x"):
        evidence.kernels[hash_] = dataclasses.replace(kernel, hash=hash_)
    assert kernel_listings.listings_of(evidence) == {}


def test_a_listing_that_is_too_long_is_left_out(evidence, monkeypatch):
    monkeypatch.setattr(kernel_listings, "_MAX_LISTINGS", len(TEXT) - 1)
    assert kernel_listings.listings_of(evidence) == {}


def test_without_triton_there_are_none(evidence, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert kernel_listings.listings_of(evidence) == {}
