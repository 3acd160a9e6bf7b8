"""Making a certificate from the evidence of a finished run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from certificates import archive, documents, envelope
from certificates.keys import PrivateKey
from certificates.listings import MAX_LISTING
from certificates.sharpness import SHARPNESS
from harness import devices
from harness.errors import UsageError
from harness.evidence import Evidence, Kernel, read, sources_of, waivers
from harness.evidence.environment import installed_version
from harness.evidence.lines import open_regular
from harness.evidence.suite import SUITE, installed_list, installed_table

_NAMED = 3


def make(
    evidence_file: Path,
    output: Path,
    key: PrivateKey | None,
    created: datetime,
    folder_of_kernel: Callable[[str], Path],
    *,
    table: Path | None = None,
    mustpass: Path | None = None,
    log: Path | None = None,
) -> Evidence:
    """Write the certificate of a run to ``output`` in one step, and return the evidence that it holds.

    ``folder_of_kernel`` returns the folder of Triton's cache that has the listing of a kernel, given its hash. The
    reports next to the evidence are included if they exist, and ``log`` if it is not None. ``table`` is the suite's
    table of requirements and ``mustpass`` its list for the run's level, by default those of the installed suite.
    Without ``key`` the certificate is unsigned.

    Raises UsageError if the run did not end, its evidence is damaged, another version of the suite made it, a listing
    is missing, or the file cannot be written.
    """
    evidence = read(evidence_file)
    _check_finished(evidence, evidence_file)
    content = _read(evidence_file)
    members = {
        archive.EVIDENCE: archive.compressed(content),
        archive.REQUIREMENTS: _read(table or _table_of(evidence, evidence_file)),
    }
    if documents.for_a_level(evidence):
        members[archive.MUSTPASS] = _read(mustpass or installed_list(evidence.runs[0].level))
    if evidence.runs[0].waivers is not None:
        members[archive.WAIVERS] = _waivers(evidence, evidence_file.with_name(archive.WAIVERS))
    for name in (archive.REPORT, archive.JUNIT):
        if (file := evidence_file.parent / name).is_file():
            members[name] = _read(file)
    if log is not None:
        members[archive.LOG] = archive.compressed(_read(log))
    members |= _listings(evidence, folder_of_kernel)
    version = installed_version("iris-harness") or "unknown"
    plain = documents.made_from(evidence, created.isoformat(timespec="seconds"), version, dict(SHARPNESS))
    members |= {name: documents.to_bytes(document) for name, document in plain.items()}
    statement = documents.to_bytes(documents.statement_of(evidence, members))
    members[archive.STATEMENT] = envelope.pack(envelope.sealed(statement, key))
    _write(output, archive.pack(members))
    return evidence


def _check_finished(evidence: Evidence, file: Path) -> None:
    if evidence.problems:
        raise UsageError(f"{file} is damaged, so that no certificate can be made of it: {evidence.problems[0]}")
    if any(run.quarantine is not None for run in evidence.runs):
        raise UsageError(f"{file} is of a run with a quarantine, of which no certificate is made: run it without")
    if len(evidence.runs) != 1 or len(evidence.ends) != 1:
        raise UsageError(f"{file} is not the evidence of one finished run: run the suite again")


def _table_of(evidence: Evidence, file: Path) -> Path:
    recorded = evidence.runs[0].harness.get("packages", {}).get(SUITE, {}).get("sha256")
    if recorded is None or recorded != sources_of(SUITE):
        raise UsageError(
            f"{file} was recorded by another version of the suite than the installed one, whose requirements do not"
            " belong to it: make the certificate with the version that made the run"
        )
    return installed_table()


def _waivers(evidence: Evidence, file: Path) -> bytes:
    if not file.is_file():
        raise UsageError(f"{file} is missing, the file of the waivers that the run is recorded with")
    content = _read(file)
    if problem := next(waivers.problems_with(content, evidence.runs), None):
        raise UsageError(f"{file}: {problem}")
    return content


def _listings(evidence: Evidence, folder_of_kernel: Callable[[str], Path]) -> dict[str, bytes]:
    members, missing = {}, []
    for kernel in evidence.kernels.values():
        content = listing_of(kernel, folder_of_kernel)
        if content is None:
            missing.append(f"{kernel.name} ({kernel.hash[:16]})")
        else:
            members[archive.listing_name(kernel.listing_sha256)] = archive.compressed(content)
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise UsageError(
            f"Triton's cache does not have the listings of kernels that ran: {', '.join(missing[:_NAMED])}{more}. Make"
            " the certificate on the machine of the run, before its cache changes (TRITON_CACHE_DIR)"
        )
    return members


def listing_of(kernel: Kernel, folder_of_kernel: Callable[[str], Path]) -> bytes | None:
    """Return the listing of a kernel from Triton's cache, or None if the cache does not have it. Raises UsageError if
    it cannot be read."""
    for content in _candidates(kernel.hash, folder_of_kernel):
        if hashlib.sha256(content).hexdigest() == kernel.listing_sha256:
            return content
    return None


def _candidates(kernel_hash: str, folder_of_kernel: Callable[[str], Path]) -> Iterator[bytes]:
    """Yield the contents of the listings in the folder of a kernel."""
    try:
        folder = folder_of_kernel(kernel_hash)
    except ValueError:  # a hash that Triton did not make
        return
    endings = {kind.listing for kind in devices.gpu_kinds()}
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        if file.suffix in endings and file.stat().st_size <= MAX_LISTING:
            yield _read(file)


def _read(file: Path) -> bytes:
    try:
        with open_regular(file, follow=True) as opened:
            content = opened.read(archive.MAX_ARCHIVE + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > archive.MAX_ARCHIVE:
        raise UsageError(f"{file} has more than {archive.MAX_ARCHIVE:,} bytes, which is too long for a certificate")
    return content


def _write(path: Path, content: bytes) -> None:
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UsageError(f"{path} is not a regular file, which a certificate could replace: name another file")
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
