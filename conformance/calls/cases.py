"""The case type of calls through an adapter."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class CallCase:
    """A call with ``n`` elements of ``dtype`` for each rank, rounded up to the adapter's granule.

    It is made ``calls`` times undisturbed, with other data each time; ``data`` selects the first. Then it is repeated
    with a rank held back, ``late`` and others, and in mode ``weak`` of the emulated device with the seed ``data``.
    ``distance``: from a rank to the peer of its device function or signal.
    """

    n: int = 1
    dtype: str = "fp32"
    calls: int = 1
    distance: int = 1
    late: int = 0
    data: int = 0
