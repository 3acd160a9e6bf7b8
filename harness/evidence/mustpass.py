"""Lists of the groups that a complete run has: one file per level, with the groups of each hardware profile and API.

A file is TOML, written by ``iris-harness mustpass write``:

    suite = "0.2.0"                       # the version of the suite that it belongs to
    level = "core"
    seed = 0                              # of every run; without it each run has its own

    [profiles.emulated-gfx942]            # what a run for this profile is recorded with
    device = "emulated"
    arch = "gfx942"
    ranks = [4, 2]
    gpus = 0                              # least number of GPUs
    models = []                           # names of GPUs, each a part of the name that the driver reports

    [[part]]                              # groups that all these profiles and APIs share
    profiles = ["emulated-gfx942"]
    apis = ["published", "extended"]
    groups = '''
    RMA-PUT-001[ranks=4,dtype=fp16]
    '''
    not_applicable = { "GPU-GRAPH-001" = "needs a GPU" }
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.evidence.evidence import Evidence
from harness.evidence.records import Run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WRITE = "iris-harness mustpass write"
_NAMED = 3


@dataclass(frozen=True)
class Hardware:
    """A hardware profile: what a run for it is recorded with. ``models`` are parts of the names of its GPUs."""

    device: str
    arch: str
    ranks: tuple[int, ...]
    gpus: int
    models: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """Groups, and requirements that are not applicable with their reasons, of some profiles and APIs."""

    profiles: tuple[str, ...]
    apis: tuple[str, ...]
    groups: tuple[str, ...]
    not_applicable: Mapping[str, str]


@dataclass(frozen=True)
class MustPass:
    """The content of one file. ``seed`` is None if each run has its own."""

    suite: str
    level: str
    seed: int | None
    profiles: Mapping[str, Hardware]
    parts: tuple[Part, ...]

    def groups(self, profile: str, api: str) -> frozenset[str]:
        """Return the groups that a complete run for a profile and an API has."""
        return frozenset(name for part in self._parts(profile, api) for name in part.groups)

    def not_applicable(self, profile: str, api: str) -> dict[str, str]:
        """Return the requirements that are not applicable in such a run, with the reasons."""
        return {name: why for part in self._parts(profile, api) for name, why in part.not_applicable.items()}

    def problems(self, evidence: Evidence) -> Iterator[str]:
        """Yield a sentence for each difference between a run with a profile, and what this list has for it."""
        for run in evidence.runs:
            hardware = self.profiles.get(run.profile)
            if run.level != self.level or hardware is None:
                yield f"the list of level {self.level} has no profile {run.profile:.60} of level {run.level:.60}"
                continue
            yield from self._of_request(run, hardware)
            yield from _of_gpus(evidence, run.profile, hardware)
            yield from self.problems_of_plan(evidence, run.profile)

    def _of_request(self, run: Run, hardware: Hardware) -> Iterator[str]:
        expected: dict[str, Any] = {
            "device": hardware.device,
            "arch": hardware.arch,
            "ranks": hardware.ranks,
            "ranks_per_gpu": 1,
            "mode": "fast",
        }
        expected |= {"seed": self.seed} if self.seed is not None else {}
        for name, value in expected.items():
            if getattr(run, name) != value:
                yield (
                    f"the run is recorded with {name} {_shown(getattr(run, name))}, and level {self.level} on"
                    f" {run.profile} has {_shown(value)}"
                )

    def problems_of_plan(self, evidence: Evidence, profile: str) -> Iterator[str]:
        """Yield a sentence for each difference between the plan of a run for a profile, and this list."""
        where = f"level {self.level} on {profile} for the API {evidence.api}"
        listed, planned = self.groups(profile, evidence.api), set(evidence.plan)
        excused = {*evidence.left_out, *evidence.unsupported}
        lacking = {name for name in listed - planned if name not in excused and name.partition("[")[0] not in excused}
        if lacking and evidence.whole:
            yield f"the plan lacks groups that {where} has: {_listed(lacking)}"
        if foreign := planned - listed:
            yield f"the plan has groups that {where} does not have: {_listed(foreign)}"
        stated, reasons = evidence.not_applicable, self.not_applicable(profile, evidence.api)
        for name in sorted(stated.keys() - reasons.keys()):
            yield f"the plan calls {name} not applicable ({stated[name]:.100}), and {where} has it"
        if absent := reasons.keys() - stated.keys() - excused:
            yield f"the plan does not call requirements not applicable, as {where} does: {_listed(absent)}"
        for name in sorted(stated.keys() & reasons.keys()):
            if stated[name] != reasons[name]:
                yield (
                    f"the plan calls {name} not applicable for the reason {stated[name]!r:.100}, and {where} for the"
                    f" reason {reasons[name]!r:.100}"
                )

    def _parts(self, profile: str, api: str) -> Iterator[Part]:
        return (part for part in self.parts if profile in part.profiles and api in part.apis)


def parse_list(content: bytes, name: str) -> MustPass:
    """Return the list in a file's ``content``; UsageError, which begins with ``name``, if it is not one."""
    try:
        plain: dict[str, Any] = tomllib.loads(content.decode())
        seed = plain.get("seed")
        profiles = {
            str(key): Hardware(
                _text(each["device"]),
                _text(each["arch"]),
                tuple(map(_count, each["ranks"])),
                _count(each["gpus"]),
                tuple(map(_text, each["models"])),
            )
            for key, each in plain["profiles"].items()
        }
        parts = tuple(
            Part(
                tuple(map(_text, each["profiles"])),
                tuple(map(_text, each["apis"])),
                tuple(_text(each["groups"]).splitlines()),
                {key: _text(value) for key, value in each.get("not_applicable", {}).items()},
            )
            for each in plain["part"]
        )
        suite, level = _text(plain["suite"]), _text(plain["level"])
        return MustPass(suite, level, None if seed is None else _count(seed), profiles, parts)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not TOML: {' '.join(str(error).split()):.200}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{name} is not a list of groups as {WRITE} writes it: {error!s:.100}") from error


def to_text(mustpass: MustPass) -> str:
    """Return the file of a list: the same text for the same content."""
    lines = [
        f"# The groups that a complete run of level {mustpass.level} has. Written by: {WRITE}",
        f'suite = "{mustpass.suite}"',
        f'level = "{mustpass.level}"',
        *([f"seed = {mustpass.seed}"] if mustpass.seed is not None else []),
    ]
    for name, hardware in sorted(mustpass.profiles.items()):
        lines += ["", f"[profiles.{name}]", f'device = "{hardware.device}"', f'arch = "{hardware.arch}"']
        lines += [f"ranks = {list(hardware.ranks)}", f"gpus = {hardware.gpus}", f"models = {_quoted(hardware.models)}"]
    for part in mustpass.parts:
        lines += ["", "[[part]]", f"profiles = {_quoted(part.profiles)}", f"apis = {_quoted(part.apis)}"]
        lines += ["groups = '''", *sorted(part.groups), "'''"]
        if part.not_applicable:
            lines += ["[part.not_applicable]"]
            lines += [f'{name} = "{reason}"' for name, reason in sorted(part.not_applicable.items())]
    return "\n".join([*lines, ""])


def _of_gpus(evidence: Evidence, profile: str, hardware: Hardware) -> Iterator[str]:
    """Yield a sentence for each recorded GPU that is not one of the profile's models."""
    for record in evidence.hardware:
        names = [str(gpu.get("name")) for gpu in record.gpus.values() if gpu.get("name")]
        if other := [name for name in names if not any(model in name for model in hardware.models)]:
            yield f"the run is for the profile {profile}, and a recorded GPU is {other[0]:.60}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r:.60}")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"expected a whole number, got {value!r:.60}")
    return value


def _quoted(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _listed(names: Set[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(sorted(names)[:_NAMED]) + (f" and {more} more" if more > 0 else "")
