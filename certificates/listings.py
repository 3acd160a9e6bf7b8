"""Listings of the kernels that ran: what the evidence states about compiled code, derived from the code again."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from certificates.archive import expanded, listing_hash, listing_name
from harness.errors import HarnessError
from harness.evidence import Case, Evidence, Kernel
from harness.isa import Fingerprint, Roots, fingerprint
from harness.isa.listed import ListedKernel
from harness.isa.sources import Where

MAX_LISTING = 64 << 20
"""Bytes of the longest listing."""

_MANY, _MOST_PROCESSES = 200, 16
"""Listings from which on several processes read them, and the largest number of processes."""

_LANES = 64
"""Lanes of the widest wavefront."""
_PLACES: tuple[Where, ...] = ("local", "remote", "unattributed")
_DAMAGED = (HarnessError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError)


Contradictions = Callable[[Case, Sequence[ListedKernel]], Iterable[str]]
"""The clauses of what a requirement does not allow, of a case that passed it and the kernels that it launched."""


def problems(evidence: Evidence, members: Mapping[str, bytes], contradictions: Contradictions) -> Iterator[str]:
    """Yield a sentence for each contradiction between the evidence and the listings in ``members``.

    Each kernel record must have its listing, with the recorded fingerprint; each access that a case executed must be in
    the code; and ``contradictions``, which judges a case again, must return none. A case of which a kernel is missing
    is not judged again, since that is a problem already.
    """
    codes: dict[str, ListedKernel] = {}
    kernels = tuple(evidence.kernels.values())
    tasks = [(members.get(listing_name(each.listing_sha256)), each.listing_sha256, each.roots) for each in kernels]
    for kernel, code in zip(kernels, _read_all(tasks), strict=True):
        name = f"kernel {kernel.name} ({kernel.hash[:16]})"
        if isinstance(code, str):
            yield f"{name}{code}"
            continue
        codes[kernel.hash] = _listed(kernel, code, members)
        yield from (f"{name}: {problem}" for problem in _recorded(kernel, code))
    used = {kernel.listing_sha256 for kernel in evidence.kernels.values()}
    for member in members:
        if (sha256 := listing_hash(member)) and sha256 not in used:
            yield f"no kernel of the evidence has the listing {member}"
    for case in evidence.cases:
        yield from _executed(case, codes)
        launched = dict.fromkeys((*case.kernels, *case.launches))
        if launched.keys() <= codes.keys():
            passed = f"case {case.id} passed {case.requirement}, and "
            yield from (f"{passed}{clause}" for clause in contradictions(case, [codes[hash_] for hash_ in launched]))


def _listed(kernel: Kernel, code: Fingerprint, members: Mapping[str, bytes]) -> ListedKernel:
    content = members[listing_name(kernel.listing_sha256)]
    return ListedKernel(
        kernel.hash, kernel.name, code, Roots.from_json(kernel.roots), lambda: expanded(content, MAX_LISTING).decode()
    )


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


def _executed(case: Case, codes: Mapping[str, ListedKernel]) -> Iterator[str]:
    """Yield the executed accesses of a case that the code of its kernels does not have, and counts that are none."""
    for hash_, launch in case.launches.items():
        if not launch["launches"]:
            yield f"case {case.id} lists kernel {hash_[:16]} with 0 launches"
        listed = codes.get(hash_)
        for access in launch["accesses"]:
            kind, width = access["kind"], access["width"]
            if kind == "copy":
                continue
            if access["bytes"] != access["lanes"] * width or access["lanes"] > _LANES * access["executions"]:
                yield (
                    f"case {case.id} executed {access['bytes']:,} bytes in kernel {hash_[:16]} with {access['lanes']:,}"
                    f" lanes of {width} bytes in {access['executions']:,} executions"
                )
            if listed is not None and not any(width in listed.code.widths(place, kind) for place in _PLACES):
                yield (
                    f"case {case.id} executed a {kind} of {width} bytes in kernel {hash_[:16]}, whose listing has no"
                    " such instruction"
                )
