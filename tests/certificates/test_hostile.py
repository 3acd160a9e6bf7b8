"""No content of a certificate that anybody can make ends a verification with an exception."""

import copy
import itertools
import json

import pytest

from certificates import archive, documents, envelope
from harness.evidence.chain import Chain
from harness.printable import plain
from tests.certificates.run import check, members_of

VALUES = (None, 0, -1, 1e9, 10**30, True, "", "x", "\x1b[31m", [], ["x"], {}, {"x": 1})
DOCUMENTS = (archive.MANIFEST, archive.PLAN, archive.ENVIRONMENT)


def places(value, place=()):
    """Yield the path of each value within a JSON document, without the document itself."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*place, key)
        yield from places(entry, (*place, key))


def changed(document, place, value):
    document = copy.deepcopy(document)
    node = document
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return document


def chained(records):
    chain, whole = Chain(str(records[0].get("run"))), b""
    for record in records:
        line, value = chain.sealed(json.dumps(record, separators=(",", ":")).encode())
        chain.advance(value)
        whole += line
    return whole


def variants(certificate):
    """Yield the members of certificates in which one value of the evidence, of a document or of the statement is
    another one. The evidence has a new chain."""
    members, values = members_of(certificate), itertools.cycle(VALUES)
    lines = archive.expanded(members[archive.EVIDENCE], 1 << 20).splitlines()
    records = [{k: v for k, v in json.loads(line).items() if k != "chain"} for line in lines]
    for number, record in enumerate(records):
        for place in places(record):
            edited = [*records[:number], changed(record, place, next(values)), *records[number + 1 :]]
            yield members | {archive.EVIDENCE: archive.compressed(chained(edited))}
    for name in DOCUMENTS:
        document = json.loads(members[name])
        for place in places(document):
            yield members | {name: documents.to_bytes(changed(document, place, next(values)))}
    statement = json.loads(envelope.unpack(members[archive.STATEMENT]).payload)
    for place in places(statement):
        payload = documents.to_bytes(changed(statement, place, next(values)))
        yield members | {archive.STATEMENT: envelope.pack(envelope.sealed(payload, None))}


@pytest.mark.nightly
def test_any_value_at_any_place(signer, certificate, monkeypatch, tmp_path):
    for module in ("certificates.verification", "harness.evidence.suite"):
        monkeypatch.setattr(f"{module}.sources_of", lambda package: None)  # it takes longer than all the rest
    path, number, genuine = tmp_path / "hostile.zip", 0, members_of(certificate)
    for members in variants(certificate):
        path.write_bytes(archive.pack(members))
        problems = check(path, signer.key.public).problems
        assert problems or members == genuine, "the value was the other one already"
        assert all(len(plain(problem)) < 2000 for problem in problems)
        number += 1
    assert number > 500
