"""The cases of a certificate's groups, drawn again: a group that passed has exactly the cases that its level draws.

The cases of a group depend on level, seed, API, capabilities of the library, and Hypothesis, and on nothing of the
machine. The lists of the suite have the groups of a level and not their cases, since drawing all of them takes minutes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from certificates import Verification
from harness.errors import UsageError
from harness.evidence import Case, Evidence, Run, Verdict
from harness.evidence.environment import installed_version
from harness.printable import plain

_RANKS = re.compile(r"\[ranks=(\d{1,6})[,\]]")
_SHOWN = 20


def cases(certificate: Verification) -> int:
    """Draw the cases of each group that passed again, and print the groups whose recorded cases are others.

    Returns 0 if there are none, else 1. Raises UsageError if this installation cannot draw the same cases.
    """
    evidence = certificate.evidence or Evidence()
    if not certificate.suite_compared:
        raise UsageError(
            f"--cases needs the suite that made the certificate, version {certificate.version:.40}: another one draws"
            " other cases"
        )
    here, there = installed_version("hypothesis"), evidence.runs[0].environment.get("packages", {}).get("hypothesis")
    if here != there:
        raise UsageError(
            f"--cases needs the Hypothesis of the run, which draws the same cases: the run had {there!s:.40}, and here"
            f" is {here}: pip install hypothesis=={there!s:.40}"
        )
    passed = [name for name in evidence.plan if _passed(evidence, name)]
    lines = list(differences(evidence, passed))
    for line in lines[:_SHOWN]:
        click.secho(plain(f"  - {line}"), fg="red")
    if len(lines) > _SHOWN:
        click.echo(f"  ... and {len(lines) - _SHOWN} more")
    same = len(passed) - len(lines)
    click.echo(f"Cases: {same} of {len(passed)} groups that passed have exactly the cases that their level draws")
    return 1 if lines else 0


def differences(evidence: Evidence, groups: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each of the ``groups`` whose recorded cases are not those that are drawn for it."""
    try:
        from command_line.mustpass import properties
        from fixtures import drawing, judged
        from fixtures.capabilities import Capabilities
        from fixtures.coverage import possible_groups
        from fixtures.tables import SUITE, vocabulary_of
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--cases needs packages that are not installed ({error.name}): pip install 'iris-harness[suite]'"
        ) from error
    tests = properties()
    options = _options(evidence.runs[0], evidence.api)
    judged.api, judged.vocabulary = evidence.api, vocabulary_of(SUITE)
    judged.capabilities = Capabilities(evidence.capabilities)
    recorded: dict[str, list[Case]] = defaultdict(list)
    for case in evidence.cases:
        recorded[case.group].append(case)
    wanted = set(groups)
    for held in tests:
        for name, parameters, _ in possible_groups(held, options):
            if name not in wanted:
                continue
            wanted.remove(name)
            ranks = _RANKS.search(name)
            assert ranks is not None  # sanity check: the plugin names groups so
            calls = drawing.calls_of(held, int(ranks[1]), parameters, options)
            yield from _difference(name, [call.plain for call in calls], [case.case for case in recorded[name]])
    for name in sorted(wanted):
        yield f"{name:.200} is not a group of level {options.level.name}, so that no cases are drawn for it"


def _difference(
    name: str, drawn: Collection[Mapping[str, Any]], recorded: Collection[Mapping[str, Any]]
) -> Iterator[str]:
    expected, stated = ({_text(case): case for case in each} for each in (drawn, recorded))
    lacking = [expected[text] for text in expected.keys() - stated.keys()]
    foreign = [stated[text] for text in stated.keys() - expected.keys()]
    if lacking:
        yield f"{name:.200} lacks {len(lacking)} of the {len(expected)} cases that are drawn for it, {_shown(lacking)}"
    elif foreign:
        yield f"{name:.200} has {len(foreign)} cases that are not drawn for it, {_shown(foreign)}"


def _text(case: Mapping[str, Any]) -> str:
    """Return the text of a case without the schedule of weak memory, which depends on what ran before."""
    return json.dumps({name: value for name, value in case.items() if name != "memory"}, sort_keys=True)


def _shown(cases: Collection[Mapping[str, Any]]) -> str:
    return f"such as {min(map(_text, cases)):.200}"


def _passed(evidence: Evidence, name: str) -> bool:
    stated = evidence.statements.get(evidence.plan[name].requirement)
    own = stated is not None and stated.table is not None
    records = evidence.groups.get(name, [])
    return not own and bool(records) and all(record.verdict is Verdict.PASS for record in records)


def _options(run: Run, api: str) -> Any:
    from fixtures.implementation import BUNDLED
    from fixtures.options import Options

    options = Options.checked(
        device=run.device, arch=run.arch, mode=None, ranks=None, level=run.level, implementation_name=BUNDLED,
        seed=str(run.seed), evidence=None, replay=None, deadline=None, api=api,
    )  # fmt: skip
    return replace(options, ranks=run.ranks, left_out=())
