"""Archive of a certificate: an uncompressed zip file in one form, read in bounded memory and never extracted.

``pack`` writes members by name, without dates, attributes and comments. ``unpack`` reads them in order from the start
and then compares the whole file with what ``pack`` writes for them, so that a byte at any place, also between and
after the members, has one possible value. Each member holds its own compressed content: ``compressed`` and
``expanded``.
"""

from __future__ import annotations

import binascii
import gzip
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UsageError
from harness.evidence.lines import open_regular

STATEMENT = "statement.sigstore.json"
MANIFEST, PLAN, ENVIRONMENT = "manifest.json", "plan.json", "environment.json"
EVIDENCE, REQUIREMENTS, MUSTPASS = "evidence.jsonl.gz", "requirements.toml", "mustpass.toml"
WAIVERS = "waivers.toml"
REPORT, JUNIT, LOG = "report.html", "junit.xml", "pytest.log.gz"
NEEDED = (STATEMENT, MANIFEST, PLAN, ENVIRONMENT, EVIDENCE, REQUIREMENTS)
"""Members that each certificate has."""
OPTIONAL = (MUSTPASS, WAIVERS, REPORT, JUNIT, LOG)

MAX_ARCHIVE = 1 << 30
"""Bytes of the largest file that is written or read."""
MAX_MEMBERS = 65_535
"""The most that the end record of a zip file can count."""

_LISTING = re.compile(r"listings/([0-9a-f]{64})\.gz")
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION, _DAY = 20, 0x21  # 2.0, and 1 January 1980: the first day that the format has


def listing_name(sha256: str) -> str:
    """Return the name of the member that holds the listing with this hash."""
    return f"listings/{sha256}.gz"


def listing_hash(name: str) -> str | None:
    """Return the hash of the listing in a member; None if the member is not a listing."""
    match = _LISTING.fullmatch(name)
    return match[1] if match else None


def known(name: str) -> bool:
    """Return whether a certificate may have a member of this name."""
    return name in NEEDED or name in OPTIONAL or listing_hash(name) is not None


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return the archive of ``members``: first the statement, then the others by name.

    Raises UsageError if it is larger than a reader accepts.
    """
    total = sum(map(len, members.values()))
    if len(members) <= MAX_MEMBERS and total <= MAX_ARCHIVE and len(data := _packed(members)) <= MAX_ARCHIVE:
        return data
    raise UsageError(
        f"a certificate of {len(members):,} members and {total:,} bytes is too large: the limits are"
        f" {MAX_MEMBERS:,} and {MAX_ARCHIVE:,}"
    )


def _packed(members: Mapping[str, bytes]) -> bytes:
    parts, directory, offset = [], [], 0
    for name in sorted(members, key=lambda name: (name != STATEMENT, name)):
        content, plain = members[name], name.encode("ascii")
        sums = (binascii.crc32(content), len(content), len(content))
        header = _LOCAL.pack(b"PK\3\4", _VERSION, 0, 0, 0, _DAY, *sums, len(plain), 0)
        entry = _CENTRAL.pack(
            b"PK\1\2", _VERSION, _VERSION, 0, 0, 0, _DAY, *sums, len(plain), 0, 0, 0, 0, 0, offset
        )  # fmt: skip
        parts += [header, plain, content]
        directory += [entry, plain]
        offset += len(header) + len(plain) + len(content)
    size, number = sum(map(len, directory)), len(members)
    end = _END.pack(b"PK\5\6", 0, 0, number, number, size, offset, 0)
    return b"".join((*parts, *directory, end))


def unpack(data: bytes) -> tuple[dict[str, bytes], list[str]]:
    """Return the members of an archive, and a sentence for each thing that is wrong with its form.

    Raises ValueError, with a clause, if the members cannot be read at all.
    """
    members: dict[str, bytes] = {}
    problems: list[str] = []
    at = 0
    while data[at : at + 4] == b"PK\3\4" and len(members) < MAX_MEMBERS and at + _LOCAL.size <= len(data):
        fields = _LOCAL.unpack_from(data, at)
        size, name_length = fields[8], fields[9]
        start = at + _LOCAL.size + name_length
        if start + size > len(data):
            raise ValueError(f"is cut off or damaged in its member at byte {at:,}")
        name = data[at + _LOCAL.size : start].decode("ascii", "backslashreplace")
        if name in members:
            problems.append(f"the archive has {name:.100} twice")
        elif not known(name):
            problems.append(f"the archive has a member that certificates do not have: {name:.100}")
        else:
            members[name] = data[start : start + size]
        at = start + size
    if not members:
        raise ValueError("is not a certificate: it has none of a certificate's members")
    if not problems and _packed(members) != data:
        problems.append("the archive is not in the form that iris-harness writes: bytes of it were changed or added")
    return members, problems


def read_archive(path: Path) -> bytes:
    """Return the bytes of the file at ``path``. Raises UsageError if it is not a regular file of a permitted size."""
    try:
        with open_regular(path, follow=True) as file:
            data = file.read(MAX_ARCHIVE + 1)
    except OSError as error:
        raise UsageError(f"the certificate {path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_ARCHIVE:
        raise UsageError(f"the certificate {path} has more than {MAX_ARCHIVE:,} bytes, the largest that is read")
    return data


def compressed(content: bytes) -> bytes:
    """Return ``content`` as a gzip file without a date."""
    return gzip.compress(content, mtime=0)


def expanded(content: bytes, limit: int) -> bytes:
    """Return the content of a gzip file. ValueError, with a clause, if it is damaged or exceeds ``limit`` bytes."""
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        plain = reader.decompress(content, limit + 1)
    except zlib.error:
        raise ValueError("is not a gzip file, or is damaged") from None
    if len(plain) > limit:
        raise ValueError(f"has more than {limit:,} bytes when expanded")
    if not reader.eof or reader.unused_data:
        raise ValueError("is cut off, or has bytes after its end")
    return plain
