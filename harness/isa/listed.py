"""A kernel of which only the record and the listing are there, as in a certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.isa.flow.origin import Roots
from harness.isa.record import Fingerprint


@dataclass(frozen=True)
class ListedKernel:
    """``hash`` is Triton's. ``code`` was read from the listing with ``roots``. ``text()`` returns the listing."""

    hash: str
    name: str
    code: Fingerprint
    roots: Roots
    text: Callable[[], str]
