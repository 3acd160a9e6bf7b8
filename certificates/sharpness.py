"""Sharpness of the suite, as a certificate names it: the share of wrong machine code that the suite's own calls reject.

The figure is that of docs/results/data/mutants-machine-code.json, which ``iris-harness mutants`` measured, without the
changes that mutants/equivalent.toml argues to be no change of meaning. A certificate carries the figure of the suite
that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHARPNESS: Mapping[str, Any] = {
    "changed": (
        "one instruction of the machine code of put, atomic_add or atomic_cas of int32 on gfx942, without equivalents"
    ),
    "changes": 315,
    "rejected": 315,
}


def in_words(figure: Any) -> str | None:
    """Return the figure of a certificate as a sentence; None if it has none of this form."""
    if not isinstance(figure, Mapping) or figure.keys() != SHARPNESS.keys():
        return None
    changes, rejected, changed = figure["changes"], figure["rejected"], figure["changed"]
    if (
        type(changes) is not int
        or type(rejected) is not int
        or not 0 <= rejected <= changes
        or type(changed) is not str
    ):
        return None
    return f"the suite's own calls reject {rejected:,} of {changes:,} changes of {changed:.200}"
