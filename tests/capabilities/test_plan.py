"""The plan of a run: what is unsupported, and what is beyond its API."""

from __future__ import annotations

from dataclasses import replace

from fixtures.capabilities import Capabilities
from fixtures.coverage import DESELECTED, Coverage, groups_of
from fixtures.requirement import Property
from harness.evidence import EXTENDED, PUBLISHED, Plan, PlannedGroup, Requirement
from tests.fixtures.test_coverage import OPTIONS

ONE_WORLD = replace(OPTIONS, ranks=(2,), ranks_given=True)
SUM = Property("SUM", lambda: None, lambda ranks: (), {"op": ("reduce", "gather")}, 1.0, 1, None, False)
FREE = replace(SUM, requirement="FREE", parameters={})
PUT = replace(SUM, requirement="PUT", parameters={})
TABLE = {
    "SUM": Requirement("SUM", "It sums.", needs=("ccl.{op}",)),
    "FREE": Requirement("FREE", "It frees.", needs=("Iris.free",), api=EXTENDED),
    "PUT": Requirement("PUT", "It puts.", needs=("put",)),
}


def planned(states: dict[str, str], *, api: str = EXTENDED, without: tuple[str, ...] = ()) -> Plan:
    """Return the plan of a run of all three tests on a library; ``without``: deselected requirements."""
    options = replace(ONE_WORLD, api=api)
    held = {each.requirement: each for each in (SUM, FREE, PUT)}
    run = Coverage(TABLE, options, held, capabilities=Capabilities(states), extended={"Iris.free", "ccl.gather"})
    groups, skipped = [], []
    for name, each in held.items():
        for parameters in [{"op": op} for op in each.parameters.get("op", ())] or [{}]:
            inside = ",".join(["ranks=2", *(f"{key}={value}" for key, value in parameters.items())])
            if run.beyond(name, parameters) or name in without:
                continue
            group = f"{name}[{inside}]"
            (skipped if run.unsupported(name, parameters) else groups).append(PlannedGroup(group, name, "x"))
    run.collected = {group for each in held.values() for group, _ in groups_of(each, options)}
    return run.plan(groups, [each.group for each in skipped])


def left(plan: Plan) -> dict[str, str]:
    """Return what is left out, without the world sizes of the level."""
    return {name: reason for name, reason in plan.left_out.items() if "ranks=2" in name or "[" not in name}


def test_a_requirement_and_a_group_without_their_capability() -> None:
    plan = planned({"Iris.free": "missing: no heap reuse", "ccl.gather": "missing", "put": "present"})
    assert plan.unsupported == {
        "FREE": "needs Iris.free: no heap reuse",
        "SUM[ranks=2,op=gather]": "needs ccl.gather",
    }
    assert {group.group for group in plan.groups} == {"SUM[ranks=2,op=reduce]", "PUT[ranks=2]"}
    assert left(plan) == {}


def test_what_was_not_chosen_is_left_out_and_not_unsupported() -> None:
    plan = planned({"Iris.free": "missing"}, without=("FREE",))
    assert plan.unsupported == {} and left(plan) == {"FREE": DESELECTED}


def test_a_published_run_has_only_what_is_published() -> None:
    plan = planned({"ccl.gather": "missing", "Iris.free": "missing"}, api=PUBLISHED)
    assert plan.api == PUBLISHED and plan.unsupported == {} and left(plan) == {}
    assert [requirement.id for requirement in plan.requirements] == ["SUM", "PUT"]
    assert {group.group for group in plan.groups} == {"SUM[ranks=2,op=reduce]", "PUT[ranks=2]"}


def test_a_published_op_that_is_missing_is_unsupported_at_both_levels() -> None:
    """Planted: the library has no put."""
    for api in (PUBLISHED, EXTENDED):
        assert planned({"put": "missing"}, api=api).unsupported == {"PUT": "needs put"}


def test_what_is_unknown_is_planned() -> None:
    plan = planned({"put": "unknown: declared, and not there: its requirements are judged", "Iris.free": "unknown"})
    assert plan.unsupported == {} and len(plan.groups) == 4
