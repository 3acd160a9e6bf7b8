"""``PLAN.toml``: what a fleet runs, where, and what it does about machines that are not healthy.

[run]                          # the options of certify
level = "gate"
device = "rocm"
profile = "mi300x-8"
[slurm]                        # options of sbatch
partition = "nightly"
gres = "gpu:8"
time = "04:00:00"
[fleet]
shards = 16
health = ["/opt/site/check-node"]
drain = true
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from command_line import mustpass, preflight
from fixtures import shards as sharing
from fixtures.coverage import Coverage
from fixtures.hardware import hardware_of
from fixtures.implementation import BUNDLED
from fixtures.levels import level_named
from fixtures.options import Options
from fixtures.tables import SUITE, vocabulary_of
from harness import devices
from harness.errors import UsageError
from harness.evidence import EXTENDED, NO_PROFILE, read_table, shards

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ATTEMPTS = 3
_LONGEST = 1 << 20


@dataclass(frozen=True)
class RunPlan:
    """Table ``[run]``: the options of certify, by their names there. ``requirements``: only these; none for all."""

    level: str = "gate"
    device: str = "emulated"
    arch: str = ""
    ranks: str = ""
    profile: str = ""
    implementation: str = BUNDLED
    adapter: str = ""
    provider: str = ""
    api: str = EXTENDED
    judge: str = ""
    seed: str = ""
    groups: str = ""
    waivers: str = ""
    requirements: tuple[str, ...] = ()
    weights: str = ""

    def options(self) -> list[str]:
        """Return them as options of certify, without those that are about the division."""
        names = [f.name for f in fields(self) if f.name not in ("requirements", "weights")]
        named = [(name, getattr(self, name)) for name in names if getattr(self, name)]
        words = [word for name, value in named for word in (f"--{name}", value)]
        return [*words, *(word for identity in self.requirements for word in ("--requirement", identity))]


@dataclass(frozen=True)
class SlurmPlan:
    """Table ``[slurm]``: options of sbatch for the jobs that run shards. The job that merges has partition, account and
    qos only."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    time: str = ""
    constraint: str = ""
    gres: str = ""
    mem: str = ""
    cpus: int = 0
    exclusive: bool = False

    def options(self, *, merge: bool = False) -> list[str]:
        """Return the options of sbatch."""
        names = {"cpus": "cpus-per-task"}
        chosen = ("partition", "account", "qos") if merge else tuple(f.name for f in fields(self))
        plain = [(names.get(name, name), getattr(self, name)) for name in chosen if getattr(self, name)]
        return [f"--{name}" if value is True else f"--{name}={value}" for name, value in plain]


@dataclass(frozen=True)
class FleetPlan:
    """Table ``[fleet]``.

    ``shards``: number of shards, 0 for one for each node; ``attempts``: how often a shard may start on machines that
    turn out not to be healthy; ``health``: a command that examines the machine before and after a shard, which ends
    with another status than 0 if it is not healthy; ``doctor``: whether iris-harness examines it besides; ``drain``:
    whether a machine that is not healthy is drained; ``attribute``: whether failed groups run again on another machine
    and on the first.
    """

    shards: int = 0
    attempts: int = ATTEMPTS
    health: tuple[str, ...] = ()
    doctor: bool = True
    drain: bool = False
    attribute: bool = True


@dataclass(frozen=True)
class Plan:
    """The whole content of a plan."""

    run: RunPlan = field(default_factory=RunPlan)
    slurm: SlurmPlan = field(default_factory=SlurmPlan)
    fleet: FleetPlan = field(default_factory=FleetPlan)

    def request(self) -> preflight.Request:
        """Return the checked request of the run. UsageError for a wrong value."""
        run = self.run
        request = preflight.check_request(
            device=run.device,
            arch=run.arch or None,
            ranks=run.ranks or None,
            level=run.level,
            implementation=run.implementation,
            adapter=run.adapter or None,
            provider=run.provider or None,
            api=run.api,
            seed=run.seed or None,
            judge=run.judge or None,
        )
        return request if not devices.kind(run.device).is_gpu else self._on_gpus(request)

    def _on_gpus(self, request: preflight.Request) -> preflight.Request:
        """Return the request of a run on GPUs, which this machine need not have."""
        if not self.run.profile and not request.ranks:
            raise UsageError("[run] profile or ranks: one of both is needed, since this machine may have other GPUs")
        if not self.run.profile:
            return request
        return replace(request, ranks=hardware_of(self.run.profile, level_named(request.level)).ranks)

    def division(self, count: int) -> tuple[shards.Division, str]:
        """Return the division of the run's groups into ``count`` shards, and its file. No device is needed."""
        request = self.request()
        if not devices.kind(request.device).is_gpu and not request.ranks:
            request, _ = preflight.with_profile(request, self.run.profile or None)
        preflight.with_shard(request, f"1/{count}")
        options = Options.checked(
            device=request.device, arch=request.arch, mode=request.mode, level=request.level,
            ranks=",".join(map(str, request.ranks)) or None, implementation_name=request.implementation,
            seed=None if request.seed is None else str(request.seed), evidence=None, replay=None, deadline=None,
            ranks_per_gpu=str(request.ranks_per_gpu), api=request.api,
        )  # fmt: skip
        table = read_table(SUITE)
        if unknown := [identity for identity in self.run.requirements if identity not in table]:
            raise UsageError(f"[run] requirements: the suite has no requirement {unknown[0]!r:.60}")
        coverage = Coverage(table, options)
        coverage.extended = vocabulary_of(SUITE).extended
        coverage.seen = {held.requirement: held for held in mustpass.properties()}
        names = sharing.names_of(coverage, self.run.requirements)
        weights = shards.weights_in(Path(self.run.weights)) if self.run.weights else None
        return shards.to_text(names, count, sharing.request_of(options), weights)


def read_plan(path: Path) -> Plan:
    """Return the plan in a file. UsageError, in one line, for the first thing that is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST)
        plain = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {' '.join(str(error).split()):.200}") from error
    tables: Mapping[str, Callable[..., Any]] = {"run": RunPlan, "slurm": SlurmPlan, "fleet": FleetPlan}
    if unknown := sorted(set(plain) - set(tables)):
        raise UsageError(f"{path}: unknown table [{unknown[0]:.60}]; the tables are {_listed(tables)}")
    plan = Plan(**{name: _table(plain.get(name, {}), f"{path}: [{name}]", make) for name, make in tables.items()})
    if not 1 <= plan.fleet.attempts <= 100 or not 0 <= plan.fleet.shards <= shards.LIMIT:
        raise UsageError(f"{path}: [fleet] attempts is from 1 to 100 and shards from 0 to {shards.LIMIT:,}")
    if plan.run.profile == NO_PROFILE:
        raise UsageError(f"{path}: [run] profile: leave it out for a run without one")
    return plan


def _table(plain: Any, where: str, make: Callable[..., Any]) -> Any:
    known = {f.name: f.type for f in fields(make)}  # type: ignore[arg-type]
    if not isinstance(plain, dict):
        raise UsageError(f"{where}: expected a table, got {plain!r:.60}")
    values: dict[str, Any] = {}
    for key, value in plain.items():
        if key not in known:
            raise UsageError(f"{where}: unknown key {key!r:.60}; the keys are {_listed(known)}")
        values[key] = _checked(value, str(known[key]), f"{where} {key}")
    return make(**values)


def _checked(value: Any, kind: str, where: str) -> Any:
    """Return a value of the type ``kind``; a number where text is expected becomes text, as on a command line."""
    if kind.startswith("tuple"):
        if isinstance(value, list) and all(_is_line(each) for each in value):
            return tuple(value)
        raise UsageError(f"{where}: expected a list of texts, got {value!r:.60}")
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and type(value) is int and value >= 0:
        return value
    if kind == "str" and (type(value) is int or _is_line(value)):
        return str(value)
    expected = {"bool": "true or false", "int": "a whole number", "str": "text of one line"}[kind]
    raise UsageError(f"{where}: expected {expected}, got {value!r:.60}")


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(names)
