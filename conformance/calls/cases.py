"""The case type of calls through an adapter."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class CallCase:
    """A call with ``n`` elements of ``dtype`` for each rank, rounded up to the adapter's granule.

    It is repeated ``calls`` times with other data. ``distance``: from a rank to the peer of its device function or
    signal. ``late`` is the rank that starts ``late_ms`` later.
    """

    n: int = 1
    dtype: str = "fp32"
    calls: int = 1
    distance: int = 1
    late: int = 0
    late_ms: int = 0
