"""The adversary of the default run: some cases of each group run in weak memory.

The emulated device's mode ``fast`` performs each access at once, which is kinder than any GPU. So on it, the first
cases of a group that access a peer's memory run in mode ``weak``, each with a schedule of its own. A case in weak
memory is a case like another one: the key ``memory`` of its JSON form names the schedule, and it is recorded, reduced
and repeated with it. Two kinds alternate:

    lazy:SEED  memory moves only when an instruction or the end of a kernel demands it
    weak:SEED  every choice is drawn

Ranks import this module, so it imports neither pytest nor Hypothesis.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError
from harness.seeds import RULE, seed_of

KEY = "memory"
KINDS = ("lazy", "weak")

SLOWER = 4.0
"""Factor on the deadline of a case in weak memory."""


def in_weak_memory(plain: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the case ``plain`` with a schedule: its kind alternates with ``number``, its seed follows from the
    case."""
    return {**plain, KEY: f"{KINDS[number % len(KINDS)]}:{zlib.crc32(repr(sorted(plain.items())).encode())}"}


def communicates(launches: Mapping[str, Any]) -> bool:
    """Return whether the kernels of a case accessed a peer's memory. ``launches``: as in ``evidence.Case``."""
    return any(access["peer"] for launch in launches.values() for access in launch["accesses"])


def check(memory: Any) -> None:
    """Raise UsageError unless ``memory`` is the text of a schedule, or None."""
    kind, _, seed = memory.partition(":") if isinstance(memory, str) else ("", "", "")
    if memory is not None and (kind not in KINDS or seed_of(seed) is None):
        forms = " or ".join(f"{kind}:SEED" for kind in KINDS)
        raise UsageError(f"the case's 'memory' must be {forms}, with a SEED that is {RULE}, not {memory!r:.100}")


def choices(memory: str) -> Any:
    """Return the ``harness.emulator.watch.Choices`` of a schedule that ``check`` accepts."""
    from harness.emulator.watch import Lazy, Seeded

    kind, _, seed = memory.partition(":")
    return {"lazy": Lazy, "weak": Seeded}[kind](int(seed))


def words(plain: Mapping[str, Any]) -> str:
    """Return the words for a report that follow the case ``plain``; empty in ordinary memory."""
    return f" in weak memory ({plain[KEY]})" if plain.get(KEY) else ""
