"""Replay runs only tests of the suite, writes only into the folder of the case, and finds a run wherever its output
is."""

import json
import os
import sys

import pytest

from command_line import preflight
from command_line.commands.replay import find_case
from command_line.suite.process import conformance_folder
from fixtures.options import read_replay
from fixtures.repeat import repeat_command
from harness import casefile, runs
from harness.errors import UsageError
from harness.evidence import case_id
from harness.evidence.records import to_json
from tests import python
from tests.cli import fake_suite
from tests.evidence import samples

NODE = "conformance/rma/test_put.py::test_put[ranks=4-dtype=int8]"
CASE = {"type": "HostCase", "fields": {"what": "barrier", "arguments": ["stride"], "late": 0, "late_ms": 1}}
GROUP = "RMA-PUT-001[ranks=4,dtype=int8]"
REQUEST = {
    "device": "emulated", "arch": "gfx942", "mode": "weak:3", "ranks": [4, 2], "ranks_per_gpu": 1, "level": "ci",
    "implementation": "iris_under_test", "seed": 5, "deadline": 90.0,
}  # fmt: skip
RECORD = {
    "id": case_id("RMA-PUT-001", GROUP, CASE), "requirement": "RMA-PUT-001", "group": GROUP, "nodeid": NODE,
    "case": CASE, "request": REQUEST,
}  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


def written(tmp_path, record):
    path = tmp_path / "case.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return str(path)


def test_a_case_file_alone_determines_how_the_case_is_run(tmp_path):
    replay = find_case(written(tmp_path, RECORD), None)
    assert (replay.nodeid, replay.record["id"]) == (NODE, RECORD["id"])
    expected = preflight.Request("emulated", "gfx942", (4,), "ci", "iris_under_test", 5, "weak:3", 1, 90.0)
    assert replay.request == expected
    assert expected.options()[-4:] == ["--deadline", "90", "--seed", "5"]
    by_hand = find_case(written(tmp_path, {"nodeid": NODE, "case": CASE}), None)
    assert casefile.ID.fullmatch(by_hand.record["id"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "../../../elsewhere"}, "16 lower-case hexadecimal digits"),
        ({"id": "0" * 16}, "is not that of its case"),
        ({"id": 7}, "'id' must be printable text"),
        ({"case": {**CASE, "type": "TileCase"}}, "is not that of its case"),
        ({"case": {"type": "HostCase"}}, "'type' and 'fields'"),
        ({"case": {"type": 1, "fields": {}}}, "'type' must be text"),
        ({"case": {"type": "HostCase", "fields": {"what": {"a": 1}}}}, "not an object"),
        ({"nodeid": "/tmp/evil.py::test_evil"}, "not a test of the suite"),
        ({"nodeid": "evil.py::test_evil"}, "not a test of the suite"),
        ({"nodeid": "conformance/../evil.py::test_evil"}, "not a test of the suite"),
        ({"nodeid": "conformance/rma/transfer.py::test_put"}, "not a test file"),
        ({"nodeid": "conformance/rma/test_missing.py::test_put"}, "not a test file"),
        ({"nodeid": "conformance/rma/test_put.py"}, "not a test of the suite"),
        ({"nodeid": f"{NODE}\n--collect-only"}, "printable text"),
        ({"nodeid": None}, "needs 'nodeid'"),
        ({"request": []}, "'request' must be an object"),
        ({"request": {**REQUEST, "device": "tpu"}}, "tpu"),
        ({"request": {**REQUEST, "seed": "1; ls"}}, "'seed' of its 'request' must be int"),
        ({"request": {**REQUEST, "deadline": -1}}, "a deadline in seconds"),
        ({"request": {**REQUEST, "deadline": 0.5}}, "a deadline in seconds, from 1 to a day"),
        ({"request": {**REQUEST, "seed": 2**63}}, "seed of its 'request' is not a whole number from 0 and below 2"),
        ({"request": {**REQUEST, "mode": "weak:" + "9" * 5000}}, "the seed of 'weak:9+ is not a whole number"),
        ({"request": {**REQUEST, "ranks": [True]}}, "list of int"),
        ({"request": {**REQUEST, "implementation": "../evil"}}, "--implementation"),
    ],
)
def test_a_record_that_the_suite_did_not_write_is_refused(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message) as caught:
        find_case(written(tmp_path, {**RECORD, **changes}), None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 20_000 + "]" * 20_000, "nested too deeply"),
        (
            json.dumps({**RECORD, "case": {"type": "HostCase", "fields": {"what": json.loads("[" * 30 + "]" * 30)}}}),
            "nested",
        ),
        ('{"case": {"type": "HostCase", "fields": {"late": NaN}}}', "NaN is not JSON"),
        ('{"case": {"type": "HostCase", "fields": {"late": ' + "9" * 5000 + "}}}", "not one JSON object"),
        ('{"pad": "' + "x" * casefile.MOST_BYTES + '"}', "larger than 1 MiB"),
        ("\udcff", "not one JSON object"),
        ("[1]", "JSON list"),
    ],
)
def test_a_file_without_a_record_gives_one_line_from_the_command_and_from_the_plugin(tmp_path, content, message):
    path = tmp_path / "case.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    for reading in (lambda: find_case(str(path), None), lambda: read_replay(str(path))):
        with pytest.raises(UsageError, match=message) as caught:
            reading()
        assert "\n" not in str(caught.value)


def test_a_pipe_does_not_make_the_command_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(UsageError, match="not a regular file"):
            find_case(name, None)
        with pytest.raises(UsageError, match="not a regular file"):
            read_replay(name)


@pytest.mark.nightly
def test_the_plugin_refuses_a_case_of_an_unknown_type_before_anything_runs(tmp_path):
    """Check replay files of unknown and known case types. A case type is known once its tests are collected."""
    assert read_replay(written(tmp_path, RECORD)) == CASE
    for case, status, says in (
        ({"type": "Nonsense", "fields": {}}, 4, "unknown case type 'Nonsense'"),
        ({"type": "TileCase", "fields": {"m": "7"}}, 4, "the field 'm' of a TileCase must be a whole number"),
        ({"type": "TileCase", "fields": {"m": 7}}, 0, "test_moving_tiles"),
    ):
        path = written(tmp_path, case)
        done = python.run(
            [sys.executable, "-m", "pytest", "-q", "--collect-only", "conformance/x/test_moving.py", "--replay", path],
            cwd=conformance_folder().parent,
        )
        assert (done.returncode, says in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr


def test_code_that_a_file_names_is_not_run_and_nothing_is_replaced(suite, tmp_path):
    """Replay hostile files in a folder with a module that would create the file ``ran`` if it were imported."""
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "test_fake.py").write_text("open('ran', 'w').close()\n\ndef test_put():\n    pass\n")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "evidence.jsonl").write_text("precious")
    plain = {**to_json(samples.case()), "nodeid": f"{tmp_path}/conformance/test_fake.py::test_put"}
    traversing = {**to_json(samples.case()), "id": "../../precious"}
    unknown = {**to_json(samples.case()), "nodeid": "conformance/rma/test_put.py::test_none"}
    for record, says in ((plain, "not a test of the suite"), (traversing, "hexadecimal"), (unknown, "test_none")):
        done = fake_suite.run(suite, tmp_path, "replay", written(tmp_path, record))
        assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
        [line] = done.stderr.splitlines()
        assert says in line
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "precious" / "evidence.jsonl").read_text() == "precious"


@pytest.mark.nightly
def test_an_id_is_found_after_certify_with_an_output_of_its_own_and_from_another_folder(suite, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    bad = samples.failing_case()
    assert fake_suite.run(suite, here, "certify", "--output", "mine", fake="fail", **state).returncode == 1
    assert fake_suite.run(suite, here, "certify", **state).returncode == 0  # newer, and without that case
    for folder in (here, there):
        done = fake_suite.run(suite, folder, "replay", bad.id[:8], **state)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith(f"Case {bad.id} of {here / 'mine' / 'evidence.jsonl'}\n")
        assert json.loads((folder / "out" / "replay" / bad.id / "case.json").read_text())["id"] == bad.id
    missing = fake_suite.run(suite, there, "replay", "0" * 16, **state)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "there is no case '0000000000000000' in the 2 newest runs" in missing.stderr
    unwritable = {"XDG_STATE_HOME": "/proc/nowhere"}  # the register of runs is optional: a run works without it
    assert fake_suite.run(suite, there, "certify", **unwritable).returncode == 0


def test_the_newest_runs_of_any_kind_are_known_in_one_way(tmp_path, monkeypatch):
    from fixtures.options import make_latest

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    places = [tmp_path / "out" / name / "evidence.jsonl" for name in ("certify", "20261122-1")]
    places.append(tmp_path / "elsewhere" / "evidence.jsonl")
    for age, place in enumerate(places):
        make_latest(place)
        place.touch()
        os.utime(place, (1000 + age, 1000 + age))
    assert runs.recent() == places[::-1]
    assert os.readlink("out/latest") == "20261122-1"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert runs.recent() == places[1::-1], "runs in out/ are found without the register"
    places[0].unlink()
    assert runs.recent() == [places[1]]


def test_a_repeat_command_of_a_case_that_passed_finds_it_in_the_evidence(tmp_path):
    case = samples.case(nodeid=NODE)
    samples.write(tmp_path / "evidence.20261122T000000.jsonl", [samples.run(), samples.plan(), samples.kernel(), case])
    replay = find_case(str(tmp_path / "cases" / f"{case.id}.json"), None)
    assert (replay.record["id"], replay.request.seed) == (case.id, 20)


def test_a_repeat_command_sets_the_path_of_packages_that_are_not_installed(tmp_path, monkeypatch):
    (tmp_path / "some iris" / "other_iris").mkdir(parents=True)
    (tmp_path / "some iris" / "other_iris" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "some iris"))
    command = repeat_command(tmp_path / "a b.json", "other_iris")
    assert f":{tmp_path}/some iris'" in command
    assert str(conformance_folder().parent) in command
    assert command.endswith(f" -m command_line replay '{tmp_path}/a b.json' --implementation other_iris")
