"""Listings of the kernels of a run that Triton's cache still has, for its report."""

from __future__ import annotations

import importlib.util
from collections import Counter

from certificates import listing_of
from command_line import kernel_cache
from harness.errors import UsageError
from harness.evidence import Evidence, Verdict

_MAX_LISTINGS, _MIN_LEFT = 1 << 20, 2000
"""Characters of all listings, and the number of free ones below which no further kernel is read."""


def listings_of(evidence: Evidence) -> dict[str, str]:
    """Return the listings of kernels for a report, by the kernel's hash, as far as the cache has them.

    Kernels of cases that did not pass come first, then those that were launched most often, up to a megabyte.
    """
    failed = {hash_ for case in evidence.cases if case.verdict is not Verdict.PASS for hash_ in case.kernels}
    launches: Counter[str] = Counter()
    for case in evidence.cases:
        launches.update({hash_: entry["launches"] for hash_, entry in case.launches.items()})
    if importlib.util.find_spec("triton") is None:  # a machine that only reads reports
        return {}
    cache = kernel_cache.folder()
    order = sorted(evidence.kernels.values(), key=lambda kernel: (kernel.hash not in failed, -launches[kernel.hash]))
    listings: dict[str, str] = {}
    left = _MAX_LISTINGS
    for kernel in order:
        try:
            content = listing_of(kernel, lambda kernel_hash: cache / kernel_cache.key_of(kernel_hash))
            text = None if content is None else content.decode("utf-8")
        except (UsageError, OSError, ValueError):  # the report is made without it
            continue
        if text is not None and len(text) <= left:
            listings[kernel.hash] = text
            left -= len(text)
        if left < _MIN_LEFT:
            break
    return listings
