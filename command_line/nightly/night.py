"""The folder of one night: which plan it is of, its seed, and whether it is finished.

NIGHT/night.json             plan, seed, start, end
NIGHT/plan.toml              a copy of the plan
NIGHT/legs/NAME/1, 2, ...    the attempts of a leg, each with evidence.jsonl, pytest.log and cases/
NIGHT/corpus/ID/1, ...       the replay of a reduced failure
NIGHT/night.md, summary.json what ran, and what changed since the nights before
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from command_line.nightly.plan import Plan
from command_line.preflight import output_folder
from harness.errors import UsageError
from harness.files import write_whole
from harness.seeds import SEEDS

STATE, PLAN = "night.json", "plan.toml"
NIGHTS = Path("out", "nightly")
SCHEMA = 1
RECENT = timedelta(hours=24)
"""A night without a named folder continues an unfinished one that began within this time."""


@dataclass(frozen=True)
class Night:
    """A night: its folder, its name in the history, its seed, and the time of its start, ISO 8601 in UTC."""

    folder: Path
    name: str
    seed: int
    started: str
    resumed: bool = False

    def seed_of(self, purpose: str) -> int:
        """Return the seed of a leg; it depends on the night's seed and the leg's name only."""
        return int(hashlib.sha256(f"{self.seed} {purpose}".encode()).hexdigest()[:15], 16)

    def finish(self) -> None:
        """Record that nothing of the night is left to run."""
        _write(self.folder, {**_state(self.folder), "finished": now()})


def open_night(
    plan: Plan, folder: Path | None, seed: int | None, *, fresh: bool = False, taken: Collection[str] = ()
) -> Night:
    """Return the night in ``folder``: the one that is unfinished there, or a new one.

    Without a folder it is the newest unfinished night of the plan below ``out/nightly`` that began within a day, unless
    ``fresh``, or else a new one in a folder with the date. ``taken``: names of nights that the history has. Raises
    UsageError if the folder has a finished night, a night of another plan or seed, or other files.
    """
    if folder is None:
        folder = (None if fresh else _unfinished(plan)) or _new_folder()
    state = _state(folder)
    if not state:
        if folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir()):
            raise UsageError(f"{folder} has files and no {STATE}: name an empty or a new --output directory")
        return _begin(plan, folder, seed, taken)
    where = folder / STATE
    if state["plan"] != plan.digest:
        raise UsageError(f"{where} is a night of another plan than {plan.path}: name another --output directory")
    if seed is not None and seed != state["seed"]:
        raise UsageError(
            f"{where} has the seed {state['seed']}, and --seed is {seed}: leave --seed out, or name another --output"
        )
    if state["finished"] is not None:
        raise UsageError(f"{where}: the night is finished since {state['finished']}: name another --output directory")
    if fresh:
        raise UsageError(f"{where}: the night is unfinished: leave --new out, or name another --output directory")
    return Night(folder.absolute(), state["name"], state["seed"], state["started"], resumed=True)


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _begin(plan: Plan, folder: Path, seed: int | None, taken: Collection[str]) -> Night:
    folder = output_folder(folder, STATE, PLAN)
    chosen = random.SystemRandom().randrange(SEEDS.stop) if seed is None else seed
    started = now()
    date, number = started[:10], 1
    name = date
    while name in taken:  # two nights of one day are two nights of the history
        number += 1
        name = f"{date}.{number}"
    write_whole(folder / PLAN, plan.path.read_text("utf-8"))
    state = {
        "schema": SCHEMA, "name": name, "plan": plan.digest, "title": plan.name, "seed": chosen, "started": started,
        "finished": None,
    }  # fmt: skip
    _write(folder, state)
    return Night(folder, name, chosen, started)


def _new_folder() -> Path:
    date, number = time.strftime("%Y-%m-%d", time.gmtime()), 1
    folder = NIGHTS / date
    while folder.exists():
        number += 1
        folder = NIGHTS / f"{date}.{number}"
    return folder


def _unfinished(plan: Plan) -> Path | None:
    candidates = []
    for path in NIGHTS.glob(f"*/{STATE}"):
        state = _state(path.parent)
        if state and state["plan"] == plan.digest and state["finished"] is None:
            candidates.append((state["started"], path.parent))
    earliest = (datetime.now(timezone.utc) - RECENT).strftime("%Y-%m-%dT%H:%M:%SZ")
    return max((pair for pair in candidates if pair[0] >= earliest), default=("", None))[1]


def _state(folder: Path) -> dict[str, Any]:
    """Return the content of a night's state; {} without one. Raises UsageError for another schema or a damaged file."""
    path = folder / STATE
    try:
        plain = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is damaged ({error}): name another --output directory") from None
    types = {"name": str, "plan": str, "seed": int, "started": str}
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        given = plain.get("schema") if isinstance(plain, dict) else plain
        raise UsageError(
            f"{path} has schema {given!r:.40}, and this version reads {SCHEMA}: name another --output directory"
        )
    for key, kind in types.items():
        if not isinstance(plain.get(key), kind):
            raise UsageError(f"{path} is damaged: {key} is {plain.get(key)!r:.60}: name another --output directory")
    if not isinstance(plain.get("finished"), (str, type(None))) or "finished" not in plain:
        raise UsageError(
            f"{path} is damaged: finished is {plain.get('finished')!r:.60}: name another --output directory"
        )
    return plain


def _write(folder: Path, state: Mapping[str, Any]) -> None:
    write_whole(folder / STATE, json.dumps(state, indent=1) + "\n")
