"""Known defects of releases of Triton, from ``compilers.toml``: findings for which a library is not to blame."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from harness.errors import HarnessError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).parent / "compilers.toml"


@dataclass(frozen=True)
class Defect:
    """An operation that Triton compiles wrongly. ``triton``: releases, as "3.6". ``contracts``: those that it breaks.
    ``finding``: a text that all its findings have. ``reason``: the defect, in words."""

    triton: tuple[str, ...]
    contracts: tuple[str, ...]
    finding: str
    reason: str


@functools.cache
def defects(file: Path = FILE) -> tuple[Defect, ...]:
    """Return the defects of all releases. HarnessError for an unknown or a missing key."""
    known = {one.name for one in fields(Defect)}
    listed = tomllib.loads(file.read_text(encoding="utf-8"))["defect"]
    for plain in listed:
        if set(plain) != known:
            raise HarnessError(f"{file}: expected the keys {sorted(known)} in each defect, got {sorted(plain)}")
    return tuple(
        Defect(tuple(plain["triton"]), tuple(plain["contracts"]), plain["finding"], plain["reason"]) for plain in listed
    )


def defect_of(triton: str, contract: str, finding: str, file: Path = FILE) -> Defect | None:
    """Return the defect of Triton ``triton``, as "3.6.0", that explains a finding about ``contract``; None if the
    library has to."""
    release = ".".join(triton.split(".")[:2])
    for defect in defects(file):
        if release in defect.triton and contract in defect.contracts and defect.finding in finding:
            return defect
    return None
