"""Listings of the kernels that ran: what the evidence states about compiled code, derived from the code again."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from certificates.archive import expanded, listing_hash, listing_name
from harness.errors import HarnessError
from harness.evidence import Case, Evidence, Kernel, Verdict
from harness.isa import Fingerprint, Roots, fingerprint, remote_mismatch
from harness.isa.record import Kind
from harness.isa.sources import Where

MAX_LISTING = 64 << 20
"""Bytes of the longest listing."""

_MANY, _MOST_PROCESSES = 200, 16
"""Listings from which on several processes read them, and the largest number of processes."""

_WIDTH = 16
_WIDE: Mapping[str, tuple[Kind, ...]] = {"ISA-WIDTH-001": ("load", "store"), "ISA-WIDTH-002": ("store",)}
"""Requirements on the width of remote accesses, with the kinds of access that they are about. Forms have the same."""
_PLACES: tuple[Where, ...] = ("local", "remote", "unattributed")
_DAMAGED = (HarnessError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError)


def problems(evidence: Evidence, members: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a sentence for each contradiction between the evidence and the listings in ``members``.

    Each kernel record must have its listing, with the recorded fingerprint; each access that a case executed must be in
    the code; and the code of cases that passed a requirement on the width of remote accesses must have that width.
    """
    codes: dict[str, Fingerprint] = {}
    kernels = tuple(evidence.kernels.values())
    tasks = [(members.get(listing_name(each.listing_sha256)), each.listing_sha256, each.roots) for each in kernels]
    for kernel, code in zip(kernels, _read_all(tasks), strict=True):
        name = f"kernel {kernel.name} ({kernel.hash[:16]})"
        if isinstance(code, str):
            yield f"{name}{code}"
            continue
        codes[kernel.hash] = code
        yield from (f"{name}: {problem}" for problem in _recorded(kernel, code))
    used = {kernel.listing_sha256 for kernel in evidence.kernels.values()}
    for member in members:
        if (sha256 := listing_hash(member)) and sha256 not in used:
            yield f"no kernel of the evidence has the listing {member}"
    for case in evidence.cases:
        yield from _executed(case, codes)
        yield from _width(case, evidence, codes)


_Task = tuple[bytes | None, str, Mapping[str, Any]]
"""The member with a listing, its recorded hash, and the roots of the kernel's addresses."""


def _read_all(tasks: Sequence[_Task]) -> Iterator[Fingerprint | str]:
    """Yield for each task the code of the listing, or what is wrong with it. Many are read by all cores."""
    cores = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    if len(tasks) < _MANY or cores < 2:
        yield from map(_read, tasks)
        return
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        try:
            yield from pool.map(_read, tasks, chunksize=16)
        except BrokenProcessPool as error:
            raise HarnessError(f"a process that read listings died, perhaps for lack of memory: {error}") from None


def _read(task: _Task) -> Fingerprint | str:
    content, sha256, roots = task
    if content is None:
        return " has no listing in the certificate"
    try:
        text = expanded(content, MAX_LISTING)
        if hashlib.sha256(text).hexdigest() != sha256:
            raise ValueError("is not the recorded one: its hash differs")
        return fingerprint(text.decode("utf-8"), roots=Roots.from_json(roots))
    except _DAMAGED as error:
        return f": its listing {error}"


def _recorded(kernel: Kernel, code: Fingerprint) -> Iterator[str]:
    """Yield the differences between a recorded fingerprint and that of the listing.

    Source positions depend on the folder of the sources, and what ptxas reports about PTX is not in the PTX.
    """
    if kernel.arch not in (code.arch, code.arch.removesuffix("a")):  # sm_90a: sm_90, and what only it has
        yield f"recorded for {kernel.arch}, and the listing is for {code.arch}"
    derived = code.to_json()
    if derived["language"] == "ptx":
        derived = {name: value for name, value in derived.items() if value is not None}
    for name, value in derived.items():
        recorded = kernel.fingerprint.get(name)
        if name == "remote_accesses":
            if "remote_accesses" in kernel.fingerprint and _forms(recorded) != _forms(value):
                yield "its recorded remote accesses are not those of the listing"
        elif name in kernel.fingerprint and _without_empty(recorded) != _without_empty(value):
            yield f"recorded with {name} {recorded!s:.100}, and the listing has {value!s:.100}"


def _forms(accesses: Any) -> Counter[tuple[Any, ...]]:
    table: Counter[tuple[Any, ...]] = Counter()
    for access in accesses:
        table[access["mnemonic"], tuple(access["bits"]), access["width"]] += access["count"]
    return table


def _without_empty(value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = {name: _without_empty(entry) for name, entry in value.items()}
        return {name: entry for name, entry in inner.items() if entry != {}}
    return value


def _executed(case: Case, codes: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield the executed accesses of a case that the code of its kernels does not have."""
    for hash_, launch in case.launches.items():
        code = codes.get(hash_)
        if code is None:
            continue
        for access in launch["accesses"]:
            kind, width = access["kind"], access["width"]
            if kind != "copy" and not any(width in code.widths(place, kind) for place in _PLACES):
                yield (
                    f"case {case.id} executed a {kind} of {width} bytes in kernel {hash_[:16]}, whose listing has no"
                    " such instruction"
                )


def _width(case: Case, evidence: Evidence, codes: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield the mismatches of a case that passed a requirement on the width of remote accesses, as compiled and as
    executed. Of the two sides of a copy only one is remote, so that either kind of access may be absent."""
    stated = evidence.statements.get(case.requirement)
    kinds = _WIDE.get((stated.form_of if stated else None) or case.requirement, ())
    if case.verdict is not Verdict.PASS or not kinds:
        return
    passed = f"case {case.id} passed {case.requirement}"
    for code in (codes[hash_] for hash_ in case.kernels if hash_ in codes):
        for kind in kinds:
            absent = not (code.widths("remote", kind) or code.widths("unattributed", kind))
            if not absent and (mismatch := remote_mismatch(code, kind, _WIDTH)):
                yield f"{passed}, and in its listing {mismatch}"
    for launch in case.launches.values():
        for access in launch["accesses"]:
            if access["where"] == "remote" and access["kind"] in kinds and access["width"] != _WIDTH:
                yield f"{passed}, and executed a remote {access['kind']} of {access['width']} bytes"
