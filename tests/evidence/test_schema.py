import jsonschema
import pytest

from harness.evidence.schema import problem_with, schema

PLACE = {"schema": 2, "run": "a1b2c3", "sequence": 0, "chain": "0" * 64}


def test_the_schema_itself_is_valid():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_an_unknown_kind_is_named():
    assert "record" in problem_with({**PLACE, "record": "verdict"})


def test_a_sentence_names_the_place():
    line = {**PLACE, "record": "end", "exit_status": "0", "finished": "2026-11-21T02:00:00Z"}
    assert problem_with(line).startswith("exit_status: ")


@pytest.mark.parametrize("kind", [[], {}, None, 3, "runs", ["run"]])
def test_a_kind_that_is_none_is_a_sentence(kind):
    assert "record" in problem_with({**PLACE, "record": kind})


@pytest.mark.parametrize("key", ["run", "sequence", "chain"])
def test_every_line_has_its_place(key):
    line = {**PLACE, "record": "end", "exit_status": 0, "finished": "2026-11-21T02:00:00Z"}
    assert problem_with(line) is None
    del line[key]
    assert key in problem_with(line)
