"""A genuine certificate has no problem; a changed one is named, whatever was changed."""

import contextlib
import json
import zipfile
from dataclasses import replace
from datetime import timedelta

import pytest

from certificates import archive, integrity, verify
from certificates.keys import new_key
from conformance import recorded
from harness.errors import UsageError
from harness.evidence import Verdict, read
from tests.certificates import run
from tests.certificates.run import check, members_of, rewritten


def test_a_genuine_certificate(signer, certificate):
    checked = check(certificate, signer.key.public)
    assert checked.problems == ()
    assert checked.signed
    assert checked.manifest["result"] == "PASSED"
    assert checked.evidence.verdict() is Verdict.PASS
    assert certificate.stat().st_size < 16_000


def test_a_certificate_without_its_key_is_not_called_signed(certificate):
    checked = check(certificate, None)
    assert checked.problems == ()
    assert not checked.signed
    assert "without --key its signature was not checked" in checked.unproven[0]


def test_the_same_run_gives_the_same_bytes_but_for_the_signature(signer, certificate):
    again = signer.certificate(run.records(), "again.zip")
    first, second = members_of(certificate), members_of(again)
    assert {name for name in first if first[name] != second[name]} == {archive.STATEMENT}


def flipped(whole, at):
    return whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]


@pytest.mark.slow
def test_every_byte_of_a_certificate_is_covered(signer, certificate):
    """Flip a bit of each byte: the form, the signature or a digest shows it."""
    whole, undetected = certificate.read_bytes(), []
    for at in range(len(whole)):
        try:
            if not integrity.opened(flipped(whole, at), signer.key.public).problems:
                undetected.append(at)
        except ValueError:
            continue  # not a certificate at all
    assert undetected == []


def test_a_flipped_byte_ends_no_verification(signer, certificate, tmp_path):
    """The later checks go on with whatever the damaged members hold, also where nothing is signed."""
    whole, damaged = certificate.read_bytes(), tmp_path / "damaged.zip"
    for at in range(0, len(whole), 211):
        damaged.write_bytes(flipped(whole, at))
        with contextlib.suppress(UsageError):
            assert check(damaged, signer.key.public).problems


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"\0" + b, lambda b: b[: len(b) // 2]]
)
def test_cut_and_added_bytes(signer, certificate, tmp_path, change):
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(change(certificate.read_bytes()))
    with contextlib.suppress(UsageError):
        assert check(damaged, signer.key.public).problems


@pytest.mark.parametrize("name", [name for name in archive.NEEDED if name != archive.STATEMENT])
def test_a_member_that_is_removed_or_emptied(signer, certificate, name):
    removed = rewritten(certificate, lambda members: members.pop(name), signer.key)
    assert f"the certificate lacks {name}" in check(removed, signer.key.public).problems
    emptied = rewritten(certificate, lambda members: members.update({name: b""}), signer.key)
    assert any(name.removesuffix(".gz") in problem for problem in check(emptied, signer.key.public).problems)


def test_all_problems_are_listed(signer, certificate):
    def change(members):
        manifest = json.loads(members[archive.MANIFEST])
        members[archive.MANIFEST] = run.documents.to_bytes({**manifest, "result": "FAILED", "seed": 1})
        members[archive.PLAN] = members[archive.PLAN].replace(b"fp16", b"fp64")
        members.pop(archive.listing_name(run.kernel(run.WIDE_HASH).listing_sha256))

    problems = check(rewritten(certificate, change, signer.key), signer.key.public).problems
    assert 'manifest.json: result is "FAILED", and the evidence gives "PASSED"' in problems
    assert any(problem.startswith("plan.json: groups is") for problem in problems)
    assert any("has no listing in the certificate" in problem for problem in problems)


def test_a_document_in_another_form(signer, certificate):
    def change(members):
        members[archive.PLAN] = json.dumps(json.loads(members[archive.PLAN])).encode()

    [problem] = check(rewritten(certificate, change, signer.key), signer.key.public).problems[:1]
    assert problem == "plan.json is not in the form that iris-harness writes"


def test_a_statement_that_differs_from_the_evidence(signer, certificate):
    members = members_of(certificate)
    old = run.envelope.unpack(members[archive.STATEMENT])
    payload = old.payload.replace(b'"result": "PASSED"', b'"result": "WARNED"')
    members[archive.STATEMENT] = run.envelope.pack(run.envelope.sealed(payload, signer.key))
    forged = certificate.with_name("forged.zip")
    forged.write_bytes(archive.pack(members))
    [problem] = check(forged, signer.key.public).problems
    assert problem == 'the statement, predicate: result is "WARNED", and the evidence gives "PASSED"'


def test_a_certificate_signed_with_another_key(signer, certificate, tmp_path):
    other = new_key(tmp_path / "other.key")
    forged = rewritten(certificate, lambda members: None, other)
    [problem] = check(forged, signer.key.public).problems
    assert problem == f"the certificate is signed with the key {other.public.id}, not with {signer.key.public.id}"
    assert check(forged, other.public).problems == ()


def test_an_unsigned_certificate(signer, certificate):
    members = members_of(certificate)
    old = run.envelope.unpack(members[archive.STATEMENT])
    members[archive.STATEMENT] = run.envelope.pack(replace(old, key_id="", signature=b""))
    unsigned = certificate.with_name("unsigned.zip")
    unsigned.write_bytes(archive.pack(members))
    assert "not signed" in check(unsigned, signer.key.public).problems[0]
    checked = check(unsigned, None)
    assert checked.problems == ()
    assert "it is not signed" in checked.unproven[0]


def test_a_certificate_from_the_future(signer, certificate):
    [problem] = verify(certificate, signer.key.public, run.CREATED - timedelta(days=2), recorded).problems
    assert problem.endswith("which is in the future")


def test_a_file_that_is_not_a_certificate(tmp_path):
    path = tmp_path / "page.zip"
    for content in (b"", b"PK\3\4", b"hello", b"PK\3\4" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"page\.zip (is|has)|is not a certificate"):
            check(path, None)
    with pytest.raises(UsageError, match="cannot be read"):
        check(tmp_path, None)
    with pytest.raises(UsageError, match="cannot be read"):
        check(tmp_path / "missing.zip", None)


def test_a_member_that_expands_beyond_the_limit(signer, certificate):
    bomb = archive.compressed(bytes(1 << 20))
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        archive.expanded(bomb, 1000)

    name = archive.listing_name(run.kernel(run.WIDE_HASH).listing_sha256)
    forged = rewritten(certificate, lambda members: members.update({name: bomb}), signer.key)
    assert any("its listing is not the recorded one" in each for each in check(forged, signer.key.public).problems)


def test_names_of_members_are_never_paths(certificate):
    members = members_of(certificate)
    for name in ("../evil", "/etc/passwd", "listings/../../evil.gz", "evidence.jsonl"):
        data = archive.pack({**members, name: b"x"})
        assert f"the archive has a member that certificates do not have: {name}" in archive.unpack(data)[1]


def test_any_zip_tool_reads_a_certificate(certificate):
    with zipfile.ZipFile(certificate) as opened:
        assert opened.testzip() is None
        assert {name: opened.read(name) for name in opened.namelist()} == members_of(certificate)


def test_a_run_that_failed_has_a_certificate_that_states_it(signer):
    checked = check(signer.certificate(run.failing(), "failed.zip"), signer.key.public)
    assert checked.problems == ()
    assert checked.manifest["result"] == "FAILED"
    assert checked.manifest["requirements"]["RMA-PUT-001"] == "fail"


def test_evidence_that_did_not_end_or_is_damaged_gets_no_certificate(signer):
    with pytest.raises(UsageError, match="not the evidence of one finished run"):
        signer.certificate(run.records()[:-1])
    listed = run.records()
    with pytest.raises(UsageError, match="is damaged"):
        signer.certificate([*listed, listed[-1]])


def test_a_listing_that_is_not_in_the_cache(signer, tmp_path):
    other = run.Signer.at(tmp_path / "other")
    (other.folder / "cache" / run.WIDE_HASH / "kernel.amdgcn").write_text(run.NARROW)
    with pytest.raises(UsageError, match="does not have the listings of kernels that ran: put_wide"):
        other.certificate(run.records())


def test_evidence_of_another_suite_needs_the_version_that_made_it(signer):
    evidence = run.samples.write(signer.folder / "evidence.jsonl", run.records())
    assert not read(evidence).problems
    with pytest.raises(UsageError, match="another version of the suite"):
        run.make(evidence, signer.folder / "x.zip", None, run.CREATED, lambda hash_: signer.folder / "cache" / hash_)
