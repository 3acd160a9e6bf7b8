"""The kill matrix: verdicts of argued equivalents, the file, the page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.errors import UsageError
from mutants import matrix
from mutants.matrix import Equivalent, Matrix, Result
from mutants.page import page, share

KILLED = Result(
    "rank-swapped:a.py:1:1", "source", "rank-swapped", "a.py", 1, "a -> b", "killed", 3.0, how="result",
    requirement="RMA-PUT-001", group="RMA-PUT-001[ranks=2]", nodeid="conformance/rma/test_put.py::test_put",
)  # fmt: skip
ALIVE = Result("wait-removed:a.py:2:1", "source", "wait-removed", "a.py", 2, "wait() -> pass", "survived", 5.0)


def verdicts(results):
    return {result.id: result.verdict for result in results}


@pytest.mark.parametrize("verdict", ["survived", "timeout"])
def test_an_argued_survivor_is_equivalent_and_counts_nowhere(verdict):
    alive = replace(ALIVE, verdict=verdict)
    judged = matrix.judged([KILLED, alive], [Equivalent(ALIVE.id, "nothing follows")], [KILLED.id, ALIVE.id])
    assert verdicts(judged) == {KILLED.id: "killed", ALIVE.id: "equivalent"}
    assert share(judged) == (1, 1) and "nothing follows" in page(Matrix({}, results=judged))


def test_an_equivalent_that_is_killed_is_an_error():
    [judged] = matrix.judged([KILLED], [Equivalent(KILLED.id, "the ranks are equal")], [KILLED.id])
    assert judged.verdict == "error" and "argued to be equivalent, and killed" in judged.message


def test_an_equivalent_that_names_no_mutant_is_an_error():
    judged = matrix.judged([KILLED], [Equivalent("wait-removed:gone.py:1:1", "no such line")], [KILLED.id])
    assert verdicts(judged) == {KILLED.id: "killed", "wait-removed:gone.py:1:1": "error"}


@pytest.mark.parametrize(("kernel", "verdicts_of_gone"), [("put@0123", ["error"]), ("get@4567", [])])
def test_an_argued_equivalent_of_machine_code_must_exist_where_its_kernel_does(kernel, verdicts_of_gone):
    gone = Equivalent(f"binary wait-dropped:{kernel}:9:1", "nothing follows")
    judged = matrix.judged([], [gone], ["binary fence-dropped:put@0123:4:1"])
    assert [result.verdict for result in judged] == verdicts_of_gone


@pytest.mark.parametrize(
    ("identity", "kind"),
    [
        ("listed:put: ranks swapped", "listed"),
        ("reported:the write-back of gfx90a", "reported"),
        ("binary fence-dropped:put@0123:4:1", "binary"),
        ("number-next:harness/oracles/heap.py:1:1", "harness"),
        ("rank-next:kernels/move.py:1:1", "source"),
    ],
)
def test_an_id_has_its_kind(identity, kind):
    assert matrix.kind_of(identity) == kind


def test_the_committed_equivalents_have_reasons():
    matrix.equivalents()


@pytest.mark.parametrize("entry", ['id = "a"', 'id = "a"\nreason = " "', 'id = "a"\nreason = "b"\nmore = 1'])
def test_an_equivalent_needs_id_and_reason(tmp_path, entry):
    (tmp_path / "equivalent.toml").write_text(f"[[equivalent]]\n{entry}\n")
    with pytest.raises(UsageError, match="needs the texts id and reason"):
        matrix.equivalents(tmp_path / "equivalent.toml")


def test_a_matrix_is_read_as_it_was_written(tmp_path):
    written = Matrix({"seed": 0}, {"cores": "2"}, {"source": 9}, [KILLED, ALIVE], [ALIVE], {"harness": "ab"})
    written.write(tmp_path / "matrix.json")
    assert matrix.read(tmp_path / "matrix.json") == written
    assert written.known() == {(KILLED.id, KILLED.change), (ALIVE.id, ALIVE.change)}


def test_an_error_is_run_again_and_a_new_result_replaces_the_old_one():
    kills = Matrix({}, results=[replace(ALIVE, verdict="error")])
    assert kills.known() == set()
    kills.add(ALIVE)
    assert kills.results == [ALIVE]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", json.dumps({"schema": 2}), '{"schema": 1, "results": [{"verdict": "fine"}]}']
)
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "matrix.json").write_text(content)
    with pytest.raises(UsageError, match="not a kill matrix"):
        matrix.read(tmp_path / "matrix.json")


def test_a_timeout_counts_as_alive():
    assert share([KILLED, replace(ALIVE, verdict="timeout")]) == (1, 2)


def test_the_page_states_what_each_level_of_the_tests_killed():
    at_first = replace(KILLED, levels={"ci": "killed"})
    later = replace(KILLED, id="rank-next:b.py:1:1", levels={"ci": "survived", "gate": "killed"})
    alive = replace(ALIVE, levels={"ci": "survived", "gate": "survived"})
    results = [at_first, later, alive]
    assert (share(results), share(results, "ci"), share(results, "gate")) == ((2, 3), (1, 3), (1, 3))
    text = page(Matrix({}, results=results))
    for wanted in (
        "| killed at `ci` | killed at `ci` or `gate` |",
        "| 1 of 3 (33.3 %) | 2 of 3 (66.7 %) |",
        "Survived at `ci`, killed at `gate`:\n\n- `rank-next:b.py:1:1` `a -> b`: RMA-PUT-001\n",
    ):
        assert wanted in text, text
    mixed = page(Matrix({}, results=[*results, replace(KILLED, id="x:harness/a.py:1:1", kind="harness")]))
    assert "| not stated | 1 of 1 (100.0 %) |" in mixed, mixed
    of_one_level = page(Matrix({}, results=[KILLED, ALIVE]))
    assert "`gate`" not in of_one_level and "| killed |" in of_one_level


@pytest.mark.parametrize("levels", [{"ci": "fine"}, {"core": "killed"}])
def test_another_level_or_verdict_is_refused(tmp_path, levels):
    Matrix({}, results=[replace(KILLED, levels=levels)]).write(tmp_path / "matrix.json")
    with pytest.raises(UsageError, match=r"not a kill matrix of version 1: results\.0\.levels"):
        matrix.read(tmp_path / "matrix.json")


def test_the_page_lists_every_survivor_and_what_killed():
    killed = replace(KILLED, cpu_seconds=90.0)
    text = page(Matrix({"seed": 0}, {"cores": "2"}, {"source": 9}, [killed, ALIVE], [ALIVE]))
    assert "not counted" in page(Matrix({}, results=[KILLED]))
    for wanted in (
        "| 4.0 s | 90.0 s (1.5 min) |",
        "| 2 of 9 |",
        "1 of 2 (50.0 %)",
        "0 of 1 (0.0 %)",
        "RMA-PUT-001 (1)",
        f"`{ALIVE.id}` `wait() -> pass`",
    ):
        assert wanted in text, text


def test_what_was_not_decided_in_time_is_run_again_with_more_time():
    late = replace(ALIVE, verdict="timeout", limit=60.0)
    kills = Matrix({}, results=[KILLED, late, replace(late, id="error", verdict="error", limit=600.0)])
    assert kills.known(60.0) == {(KILLED.id, KILLED.change), (late.id, late.change)}
    assert kills.known(61.0) == {(KILLED.id, KILLED.change)}
