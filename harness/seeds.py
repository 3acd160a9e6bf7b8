"""Seeds: whole numbers from 0 that fit 63 bits, so that every reader of the evidence can represent them."""

from __future__ import annotations

SEEDS = range(1 << 63)
RULE = "a whole number from 0 and below 2**63"


def seed_of(text: str) -> int | None:
    """Return the seed that ``text`` names in decimal digits; None if ``text`` is not a seed."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(SEEDS[-1])):
        return None
    return int(text) if int(text) in SEEDS else None
