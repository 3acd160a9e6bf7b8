"""The tests that killed are tried first on the next mutant of the same place."""

from __future__ import annotations

from dataclasses import replace

from mutants.killers import FIRST_TRIED, Killers, in_turns
from mutants.matrix import KILLED, SURVIVED, Result, result_of
from mutants.mutant import HARNESS, LISTED, SOURCE, Mutant
from mutants.selection import FIRST, SECOND, Stage

NEAREST = (Stage(("conformance/rma",)), Stage(("conformance/rma",), ranks=4, level=SECOND))


def mutant(operator: str, line: int, function: str = "put", file: str = "kernels/a.py") -> Mutant:
    return Mutant(f"{operator}:{file}:{line}:1", SOURCE, operator, file, line, 1, 0, "a", "b", function)


def killed(one: Mutant, test: str, *, ranks: int = 2, level: str = FIRST) -> Result:
    return result_of(one, KILLED, 3.0, levels={level: KILLED}, nodeid=f"{test}[ranks={ranks}]")


def targets(stages: tuple[Stage, ...]) -> list[str]:
    return [target for stage in stages for target in stage.targets]


def test_the_killer_of_the_same_function_comes_first_and_nothing_is_left_out():
    first, second, elsewhere = mutant("rank-next", 1), mutant("mask-left", 2), mutant("rank-next", 3, file="b.py")
    killers = Killers([], {one.id: one for one in (first, second, elsewhere)})
    assert killers.before(second, NEAREST) == NEAREST
    killers.add(killed(first, "a.py::test_put"))
    tried, *rest = killers.before(second, NEAREST)
    assert tried == Stage(("a.py::test_put[ranks=2]",), level=FIRST, optional=True) and tuple(rest) == NEAREST
    assert killers.before(elsewhere, NEAREST) == NEAREST


def test_own_killer_then_that_of_the_operator_then_of_the_function_then_of_the_file():
    own, alike, near, far = (
        mutant("dtype-int32", 1), mutant("dtype-int32", 2, "get"), mutant("rank-next", 3), mutant("mask-left", 4, "get")
    )  # fmt: skip
    results = [killed(far, "t.py::far"), killed(near, "t.py::near"), killed(alike, "t.py::alike")]
    known = {one.id: one for one in (own, alike, near, far)}
    assert targets(Killers(results, known).before(own, NEAREST))[:3] == [
        f"t.py::{name}[ranks=2]" for name in ("alike", "near", "far")
    ]
    all_tried = targets(Killers([*results, killed(own, "t.py::own")], known).before(own, NEAREST))
    assert all_tried[:FIRST_TRIED] == [f"t.py::{name}[ranks=2]" for name in ("own", "alike", "near")]
    assert all_tried[FIRST_TRIED:] == targets(NEAREST)


def test_a_killer_is_tried_at_its_level_with_its_ranks():
    one = mutant("rank-next", 1)
    before = Killers([killed(one, "t.py::late", ranks=3, level=SECOND)], {one.id: one}).before(one, NEAREST)
    late = Stage(("t.py::late[ranks=3]",), ranks=3, level=SECOND, optional=True)
    assert before == (NEAREST[0], late, NEAREST[1])


def test_survivors_and_kills_without_a_test_say_nothing():
    one = mutant("rank-next", 1)
    alive = result_of(one, SURVIVED, 3.0, levels={FIRST: SURVIVED})
    at_import = result_of(one, KILLED, 3.0, how="collection", levels={FIRST: KILLED})
    assert Killers([alive, at_import], {one.id: one}).before(one, NEAREST) == NEAREST


def test_a_listed_mutant_has_only_its_own_killer():
    near, listed = mutant("rank-next", 1), replace(mutant("x", 2), kind=LISTED, chosen="put")
    killers = Killers([killed(near, "t.py::near")], {one.id: one for one in (near, listed)})
    assert killers.before(listed, NEAREST) == NEAREST
    killers.add(killed(listed, "t.py::own"))
    assert targets(killers.before(listed, NEAREST))[0] == "t.py::own[ranks=2]"


def test_the_killers_of_a_mutant_of_the_harness_come_first_whatever_their_level():
    own = (Stage(("tests/gate/test_judge.py",)),)
    first, second = (replace(mutant("result-none", line), kind=HARNESS) for line in (1, 2))
    killers = Killers([], {one.id: one for one in (first, second)})
    killers.add(result_of(first, KILLED, 3.0, how="test", nodeid="tests/gate/test_judge.py::test_red"))
    assert killers.before(second, own) == (Stage(("tests/gate/test_judge.py::test_red",), optional=True), *own)


def test_functions_take_turns():
    put = [mutant("rank-next", line) for line in (1, 2, 3)]
    get = [mutant("rank-next", line, "get") for line in (4, 5)]
    assert in_turns([*put, *get], lambda one: one) == [put[0], get[0], put[1], get[1], put[2]]


def test_a_mutant_is_known_once_a_test_killed_it():
    own, other = mutant("rank-next", 1), mutant("mask-left", 2)
    killers = Killers([killed(own, "t.py::own")], {one.id: one for one in (own, other)})
    assert killers.knows(own) and not killers.knows(other)
