"""The lists of the groups that a complete run has, made from the tests of the suite.

A list depends on nothing of this machine: the groups of a test follow from its parameters, the level's world sizes and
the facts of a hardware profile.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import conformance
from fixtures.coverage import Coverage, possible_groups
from fixtures.hardware import hardware_of, profiles
from fixtures.implementation import BUNDLED
from fixtures.levels import LEVELS, Level
from fixtures.options import Options
from fixtures.requirement import ATTRIBUTE, Property
from fixtures.tables import SUITE, vocabulary_of
from harness.errors import HarnessError
from harness.evidence import APIS, read_table
from harness.evidence.environment import installed_version
from harness.evidence.mustpass import MustPass, Part, to_text
from harness.evidence.suite import installed_list

LISTED = tuple(level for level in LEVELS.values() if level.listed)
_Runs = dict[str, set[tuple[str, str]]]
"""Profiles and APIs of the runs that have something, by its name."""


def outdated() -> dict[Path, str]:
    """Return the text that each file should have and does not, by path."""
    tests = properties()
    texts = {installed_list(level.name): to_text(list_of(level, tests)) for level in LISTED}
    return {path: text for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text}


def properties() -> tuple[Property, ...]:
    """Return the tests of the suite, after importing all of its modules."""
    names = [module.name for module in pkgutil.walk_packages(conformance.__path__, f"{conformance.__name__}.")]
    modules = [importlib.import_module(name) for name in names if name.rpartition(".")[2].startswith("test_")]
    held = (getattr(value, ATTRIBUTE, None) for module in modules for value in vars(module).values())
    return tuple({id(one): one for one in held if isinstance(one, Property)}.values())


def list_of(level: Level, tests: Iterable[Property]) -> MustPass:
    """Return the list of a level for these tests. HarnessError if a test has groups that a run of the level cannot
    run."""
    groups: _Runs = defaultdict(set)
    reasons: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    machines = {name: hardware_of(name, level) for name in profiles()}
    for name, hardware in machines.items():
        for api in APIS:
            options = Options.checked(
                device=hardware.device, arch=hardware.arch, mode=None, ranks=None, level=level.name,
                implementation_name=BUNDLED, seed=None, evidence=None, replay=None, deadline=None, api=api,
            )  # fmt: skip
            coverage = Coverage(read_table(SUITE), replace(options, ranks=hardware.ranks))
            coverage.extended = vocabulary_of(SUITE).extended
            for held in tests:
                coverage.seen[held.requirement] = held
                if not coverage.judged(held.requirement):
                    continue
                if (never := coverage.never(held.requirement)) is not None:
                    reasons[held.requirement, never].add((name, api))
                    continue
                for group in _groups(coverage, held):
                    groups[group].add((name, api))
    seed = None if level.random else 0
    return MustPass(installed_version("iris-harness") or "", level.name, seed, machines, _parts(groups, reasons))


def _groups(coverage: Coverage, held: Property) -> Iterator[str]:
    for group, parameters, obstacle in possible_groups(held, coverage.options):
        if coverage.beyond(held.requirement, parameters):
            continue
        if obstacle is not None:
            raise HarnessError(f"level {coverage.options.level.name} has the group {group}, which {obstacle}")
        yield group


def _parts(
    groups: Mapping[str, set[tuple[str, str]]], reasons: Mapping[tuple[str, str], set[tuple[str, str]]]
) -> tuple[Part, ...]:
    """Return parts in which each group occurs once, or once for each API if its profiles differ between APIs."""
    of_groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    of_reasons: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, str]] = defaultdict(dict)
    for group, runs in groups.items():
        for key in _products(runs):
            of_groups[key].append(group)
    for (identity, reason), runs in reasons.items():
        for key in _products(runs):
            of_reasons[key][identity] = reason
    keys = sorted({*of_groups, *of_reasons}, key=lambda key: (-len(key[0]) * len(key[1]), key))
    return tuple(Part(*key, tuple(sorted(of_groups[key])), of_reasons[key]) for key in keys)


def _products(runs: set[tuple[str, str]]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield profiles and APIs such that all pairs of them are ``runs``."""
    by_profiles: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for api in APIS:
        if of_api := tuple(profile for profile in profiles() if (profile, api) in runs):
            by_profiles[of_api].append(api)
    for names, apis in by_profiles.items():
        yield names, tuple(apis)


def first_difference(path: Path, text: str) -> str:
    """Return a clause that states how a file first differs from the ``text`` that it should have."""
    if not path.is_file():
        return "is missing"
    lines, right = path.read_text("utf-8").splitlines(), text.splitlines()
    if lacking := [line for line in right if line not in set(lines)]:
        return f"lacks {lacking[0]!r:.200}"
    if foreign := [line for line in lines if line not in set(right)]:
        return f"has {foreign[0]!r:.200}, which the suite's tests do not make"
    return "has its lines in another order"
