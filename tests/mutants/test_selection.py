"""The tests that each listed defect names: on its number of ranks, at least one of them is run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from _pytest.mark import KeywordMatcher
from _pytest.mark.expression import Expression

from command_line.suite.process import child_environment, pytest_arguments
from mutants import listing, planting
from mutants.mutant import LISTED, REPORTED, SOURCE, Mutant
from mutants.selection import FIRST, GATE_RANKS, SECOND, Stage, stages_of

PROGRAM = """
import json, sys
import pytest
from _pytest.mark import KeywordMatcher

class Collected:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        items = [item for item in session.items if not item.get_closest_marker("skip")]
        with open(sys.argv[1], "w") as file:
            json.dump([sorted(KeywordMatcher.from_item(item)._names) for item in items], file)

sys.exit(pytest.main(sys.argv[2:], plugins=[Collected()]))
"""


@pytest.fixture(scope="module")
def words_by_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[KeywordMatcher]]:
    """Return the words that -k looks at, of each test that is not skipped, for each number of ranks in the lists."""
    folder, words = tmp_path_factory.mktemp("collected"), {}
    for ranks in sorted({stage.ranks for _, stage in chosen_stages()}):
        file = folder / f"{ranks}.json"
        options = ("--collect-only", "-q", "--level", "ci", "--ranks", str(ranks))
        command = [sys.executable, "-c", PROGRAM, str(file), *pytest_arguments(["conformance"], *options)]
        done = subprocess.run(
            command, env=child_environment(), cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        words[ranks] = [KeywordMatcher(frozenset(names)) for names in json.loads(file.read_text())]
    return words


def chosen_stages() -> list[tuple[Mutant, Stage]]:
    mutants = [*listing.all_of(LISTED), *listing.all_of(REPORTED)]
    return [(mutant, stage) for mutant in mutants for stage in stages_of(mutant) if stage.chosen]


def without_tests(pairs: list[tuple[Mutant, Stage]], words_by_ranks: dict[int, list[KeywordMatcher]]) -> list[str]:
    return [
        f"{mutant.id}: {stage.chosen!r} selects no test on {stage.ranks} ranks"
        for mutant, stage in pairs
        if not any(map(Expression.compile(stage.chosen).evaluate, words_by_ranks[stage.ranks]))
    ]


@pytest.mark.nightly
def test_every_listed_defect_selects_a_test_that_runs(words_by_ranks: dict[int, list[KeywordMatcher]]) -> None:
    assert without_tests(chosen_stages(), words_by_ranks) == []
    mutant, _ = chosen_stages()[0]
    three = Stage(("conformance",), "overlapping", 2)  # its tests need three ranks
    assert without_tests([(mutant, three)], words_by_ranks) == [
        f"{mutant.id}: 'overlapping' selects no test on 2 ranks"
    ]


def test_a_generated_mutant_is_tried_again_as_the_gate_runs() -> None:
    mutant = next(each for each in listing.all_of(SOURCE) if each.file == "host/groups.py")
    stages = stages_of(mutant)
    assert [stage.level for stage in stages] == [FIRST, FIRST, SECOND, SECOND]
    assert [stage.ranks for stage in stages] == [2, 3, GATE_RANKS, GATE_RANKS]
    assert [(one.targets, one.chosen) for one in stages[:2]] == [(one.targets, one.chosen) for one in stages[2:]]
    defect = next(each for each in listing.all_of(LISTED) if each.ranks == 3)
    assert [(stage.level, stage.ranks) for stage in stages_of(defect)] == [(FIRST, 3), (SECOND, 3)]
    assert [stage.targets for stage in stages_of(mutant, thorough=True)][2] == ("conformance",)
    assert stages_of(mutant, levels=(FIRST,)) == stages[:2]


def test_a_listed_defect_without_tests_of_its_own_meets_those_of_its_function() -> None:
    defect = planting.Defect("device: a put", "device/gluon/context.py", "mask=mask", "mask=None", "def put")
    mutant = listing.of_defect(LISTED, defect)

    assert mutant.function == "IrisDeviceCtx.put"
    stages = stages_of(mutant)
    assert stages[0].chosen == "test_put and not _by_"
    assert [stage.ranks for stage in stages if stage.level == SECOND] == [GATE_RANKS] * (len(stages) // 2)


def test_a_change_that_only_some_tests_can_show_meets_these_first() -> None:
    mutants = listing.all_of(SOURCE)

    def first(operator: str, file: str, line: str) -> Stage:
        """Return the first stage of the mutant of a line of the library."""
        lines = (planting.SOURCE / file).read_text(encoding="utf-8").splitlines()
        matching = [
            each for each in mutants if (each.operator, each.file) == (operator, file) and line in lines[each.line - 1]
        ]
        return stages_of(matching[0])[0]

    checked = first("rank-swapped", "device/triton/ops.py", "check(pointer, heap_bases, from_rank, to_rank")
    assert (checked.targets, checked.chosen) == (("conformance/negative",), "debug")
    moved = first("rank-swapped", "device/triton/ops.py", "remote = translate(pointer, heap_bases, from_rank, to_rank")
    assert (moved.targets, moved.chosen) == (("conformance/rma",), "test_store_by")
    assert first("dtype-int32", "kernels/all_reduce.py", "tl.int64").chosen == "far"
    assert first("dtype-narrow", "kernels/all_reduce.py", "").ranks == 3


def test_no_mutant_is_made_of_files_that_an_emulated_run_does_not_import() -> None:
    made = {each.file for each in listing.all_of(SOURCE)}
    assert not {file for file in made if file.startswith(("host/platform/gpu/", "host/platform/cuda/", "bench/"))}
    assert any(file.startswith("host/platform/emulated/") for file in made)
