"""The first stage of a verification: the form of the archive, the signature, and the digests of all members.

No byte of a signed certificate can change without a problem here. The later stages compare what the members state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from certificates import archive, documents, envelope
from certificates.archive import NEEDED, STATEMENT
from certificates.keys import PublicKey
from harness.evidence import parse


@dataclass(frozen=True)
class Opened:
    """A certificate after the first stage. ``statement`` is empty if it could not be read.

    ``key_id`` is the key that the certificate names, empty if it is unsigned; ``signed`` is true if its signature is
    that of the key that the caller named.
    """

    members: Mapping[str, bytes]
    statement: Mapping[str, Any]
    problems: tuple[str, ...]
    key_id: str
    signed: bool


def opened(data: bytes, key: PublicKey | None) -> Opened:
    """Return the certificate in ``data`` with the problems of its form, signature and digests.

    Without ``key`` the signature is not checked. Raises ValueError, with a clause, if it is not a certificate at all.
    """
    members, problems = archive.unpack(data)
    problems += [f"the certificate lacks {name}" for name in NEEDED if name not in members]
    if STATEMENT not in members:
        return Opened(members, {}, tuple(problems), "", False)
    try:
        sealed = envelope.unpack(members[STATEMENT])
    except ValueError as error:
        return Opened(members, {}, (*problems, f"{STATEMENT} {error}"), "", False)
    # The signature comes first, and the statement is read from the bytes that it covers.
    unsigned = sealed.problem_with(key) if key is not None else None
    problems += [unsigned] if unsigned else []
    statement: Mapping[str, Any] = {}
    try:
        statement = parse(sealed.payload)
        problems += _subjects(statement, members)
    except ValueError as error:
        problems.append(f"the statement {error}")
    return Opened(members, statement, tuple(problems), sealed.key_id, key is not None and unsigned is None)


def _subjects(statement: Mapping[str, Any], members: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the members whose digests are not those of the statement."""
    listed = statement.get("subject")
    entries = listed if isinstance(listed, list) else []
    stated = {str(entry.get("name")): entry for entry in entries if isinstance(entry, dict)}
    for subject in documents.member_subjects(members):
        name = subject["name"]
        if name not in stated:
            yield f"the statement does not name {name}"
        elif stated[name] != subject:
            yield f"{name} is not the file that the statement names: its digest differs"
    for name in stated:
        if archive.known(name) and name not in members:
            yield f"the statement names {name:.100}, which the certificate lacks"
