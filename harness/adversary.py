"""The adversary of the default run: some cases of each group run in weak memory, under the race detector, or in mode
``check``.

The emulated device's mode ``fast`` performs each access at once, which is kinder than any GPU. So on it, the first
cases of each kernel that access a peer's memory run in mode ``weak``, each with a schedule of its own, and in turn with
them under the race detector of all ranks together. A kernel whose wavefronts share memory of their compute unit (LDS)
also runs in mode ``check``, in which each of its accesses needs an ``s_barrier``. Such a case is a case like another
one: the key
``memory`` of its JSON form names the schedule, and it is recorded, reduced and repeated with it. In weak memory two
kinds alternate:

    lazy:SEED  memory moves only when an instruction or the end of a kernel demands it
    weak:SEED  every choice is drawn
    race:SEED  two accesses that nothing orders are a failure, even if the values come out right
    check:SEED two accesses to LDS without an s_barrier between, values that were never written, and whatever else a GPU
               answers with wrong numbers are a failure; nothing is drawn

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
"""The kinds of weak memory."""
RACE = "race"
CHECK = "check"
_ALL = (*KINDS, RACE, CHECK)

SLOWER = 4.0
"""Factor on the deadline of a case with a schedule."""

NOT_JUDGED = "not checked for races"
"""Beginning of the remark on a case that is too long for the race detector."""

RELIES = "relies on unspecified behaviour"
"""What the other remarks state: a race that exists only in the weaker reading of a rule."""


def in_weak_memory(plain: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the case ``plain`` with a schedule: its kind alternates with ``number``, its seed follows from the
    case."""
    return _scheduled(plain, KINDS[number % len(KINDS)])


def without_chance(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case ``plain`` with the kind of weak memory in which memory moves as late as it can."""
    return _scheduled(plain, KINDS[0])


def is_without_chance(plain: Mapping[str, Any]) -> bool:
    """Return whether a case has such a schedule."""
    return str(plain.get(KEY) or "").startswith(f"{KINDS[0]}:")


def under_race_detector(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case ``plain`` with a schedule under the race detector, whose seed follows from the case."""
    return _scheduled(plain, RACE)


def in_mode_check(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case ``plain`` with a schedule in mode ``check``."""
    return _scheduled(plain, CHECK)


def _scheduled(plain: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {**plain, KEY: f"{kind}:{zlib.crc32(repr(sorted(plain.items())).encode())}"}


def communicates(launches: Mapping[str, Any]) -> bool:
    """Return whether the kernels of a case accessed a peer's memory. ``launches``: as in ``evidence.Case``."""
    return any(access["peer"] for launch in launches.values() for access in launch["accesses"])


def check(memory: Any) -> None:
    """Raise UsageError unless ``memory`` is the text of a schedule, or None."""
    kind, _, seed = memory.partition(":") if isinstance(memory, str) else ("", "", "")
    if memory is not None and (kind not in _ALL or seed_of(seed) is None):
        forms = " or ".join(f"{kind}:SEED" for kind in _ALL)
        raise UsageError(f"the case's 'memory' must be {forms}, with a SEED that is {RULE}, not {memory!r:.100}")


def choices(memory: str) -> Any:
    """Return the ``harness.emulator.watch.Choices`` of a schedule of weak memory or the race detector."""
    from harness.emulator.watch import Lazy, Seeded

    kind, _, seed = memory.partition(":")
    return {"lazy": Lazy, "weak": Seeded, RACE: Seeded}[kind](int(seed))


def detects_races(memory: str) -> bool:
    """Return whether a schedule that ``check`` accepts is one of the race detector."""
    return memory.startswith(f"{RACE}:")


def checks(memory: str) -> bool:
    """Return whether a schedule that ``check`` accepts is one of mode ``check``."""
    return memory.startswith(f"{CHECK}:")


def weakens(memory: str) -> bool:
    """Return whether a schedule that ``check`` accepts is one of weak memory."""
    return memory.startswith(tuple(f"{kind}:" for kind in KINDS))


def words(plain: Mapping[str, Any]) -> str:
    """Return the words for a report that follow the case ``plain``; empty in ordinary memory."""
    if not (memory := plain.get(KEY)):
        return ""
    where = {RACE: "under the race detector", CHECK: "in mode check"}.get(memory.partition(":")[0], "in weak memory")
    return f" {where} ({memory})"
