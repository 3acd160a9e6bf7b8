import jsonschema

from harness.evidence.schema import problem_with, schema


def test_the_schema_itself_is_valid():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_an_unknown_kind_is_named():
    assert "record" in problem_with({"schema": 1, "record": "verdict"})


def test_a_sentence_names_the_place():
    line = {"schema": 1, "record": "end", "exit_status": "0", "finished": "2026-11-21T02:00:00Z"}
    assert problem_with(line).startswith("exit_status: ")
