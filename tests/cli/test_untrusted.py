"""Files from elsewhere can neither choose the code that runs nor control the terminal."""

import io
import json
import os
import shlex
import subprocess
import sys

import pytest
from rich.console import Console

from command_line.commands.check import Verdicts
from command_line.commands.replay import _Shown, find_case
from fixtures.repeat import repeat_command
from harness import runs
from harness.errors import UsageError
from harness.evidence import Group, Store, Verdict, case_id
from tests.cli import fake_suite
from tests.evidence import samples

NODE = "conformance/rma/test_put.py::test_put[ranks=4-dtype=int8]"
CASE = {"type": "HostCase", "fields": {"what": "barrier"}}
REQUEST = {
    "device": "emulated", "arch": "gfx942", "mode": "fast", "ranks": [4], "ranks_per_gpu": 1, "level": "ci",
    "implementation": "planted", "seed": 5, "deadline": 90.0,
}  # fmt: skip


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Make a folder with a package that creates the file ``ran`` when it is imported, and a case that names it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (tmp_path / "case.json").write_text(json.dumps({"nodeid": NODE, "case": CASE, "request": REQUEST}))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_file_does_not_choose_the_package_that_is_imported(planted):
    environment = {**fake_suite.environment(fake_suite.ROOT), "PYTHONPATH": f"{fake_suite.ROOT}:{planted}"}
    done = fake_suite.run_in(environment, planted, "replay", "case.json")
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert "iris-harness replay case.json --implementation planted" in line
    assert not (planted / "ran").exists()


def test_the_user_names_the_package_and_no_other_than_the_recorded_one(planted):
    path = str(planted / "case.json")
    assert find_case(path, None, "planted").request.implementation == "planted"
    with pytest.raises(UsageError, match="'planted', not with 'iris_under_test'"):
        find_case(path, None, "iris_under_test")
    (planted / "case.json").write_text(json.dumps({"nodeid": NODE, "case": CASE}))
    assert find_case(path, None).request.implementation == "iris_under_test"
    assert find_case(path, None, "planted").request.implementation == "planted"


def test_the_recorded_package_of_an_own_run_is_used_and_that_of_other_evidence_is_not(planted, monkeypatch):
    evidence = planted / "out" / "mine" / "evidence.jsonl"
    evidence.parent.mkdir(parents=True)
    case = samples.case(nodeid=NODE)
    run = samples.run(implementation={"name": "planted", "version": "1", "commit": None})
    samples.write(evidence, [run, samples.plan(), samples.kernel(), case])
    monkeypatch.chdir(planted)
    for place in (None, evidence):  # a file in out/ may have been unpacked from elsewhere
        with pytest.raises(UsageError, match="--implementation planted"):
            find_case(case.id, place)
    assert find_case(case.id, evidence, "planted").request.implementation == "planted"
    runs.note(evidence)
    assert find_case(case.id, None).request.implementation == "planted"


def test_the_repeat_command_names_the_package(planted):
    words = shlex.split(repeat_command(planted / "case.json", "planted"))
    assert words[-4:] == ["replay", str(planted / "case.json"), "--implementation", "planted"]
    assert "--implementation" not in repeat_command(planted / "case.json", "iris_under_test")


@pytest.mark.parametrize("checkout", [False, True])
def test_a_module_in_the_current_folder_is_imported_only_in_a_checkout(tmp_path, checkout):
    (tmp_path / "click.py").write_text("open('ran', 'w').close()\nraise SystemExit(7)\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    if checkout:
        for package in ("command_line", "harness"):
            (tmp_path / package).symlink_to(fake_suite.ROOT / package)
    else:
        environment["PYTHONPATH"] = str(fake_suite.ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "command_line", "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, (tmp_path / "ran").exists()) == ((7, True) if checkout else (0, False)), done.stderr


def test_control_characters_of_the_log_do_not_reach_the_terminal(planted, capsys):
    (planted / "case.json").write_text(json.dumps({"nodeid": NODE, "case": CASE}))
    shown = _Shown(find_case(str(planted / "case.json"), None))
    parts = [b"a\x1b]0;title\x07b\r\n", "é".encode()[:1], "é".encode()[1:] + b"\tend\n\xff"]
    for number, part in enumerate(parts, 1):
        shown.show(io.BytesIO(part), ended=number == len(parts))
    heading, *lines = capsys.readouterr().out.split("\n")
    assert heading.startswith("Case ")
    assert lines == [r"a\x1b]0;title\x07b\r", "é\tend", "\ufffd"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"record": "group", "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"record": "group"}',
        b'{"record": "group", "group": "A", "verdict": [], "cases": 1}',
        b'{"record": "group", "group": "A", "verdict": "pass", "cases": 1, "seconds": "x"}',
        b'"group"',
    ],
)
def test_check_skips_a_line_without_a_valid_record(tmp_path, line):
    console = Console(file=io.StringIO(), width=200)
    path = tmp_path / "evidence.jsonl"
    verdicts = Verdicts(path, console)
    verdicts.look()
    path.write_bytes(line + b"\n")
    verdicts.look()
    assert console.file.getvalue() == ""
    with Store(tmp_path / "other.jsonl") as store:
        store.append(samples.run())
        store.append(Group(samples.PUT_GROUP, samples.PUT, Verdict.PASS, 3, seconds=0.25))
    path.write_bytes(line + b"\n" + (tmp_path / "other.jsonl").read_bytes())
    verdicts.look()
    verdicts.look()
    assert console.file.getvalue() == f"pass     {samples.PUT_GROUP}  3 cases  0.2 s\n"


def test_names_of_folders_and_of_problems_are_escaped(tmp_path):
    folder = tmp_path / "a\x1b[31mb"
    folder.mkdir()
    samples.write(folder / "evidence.jsonl", samples.green())
    with (folder / "evidence.jsonl").open("ab") as file:
        file.write(b"torn\n")
    for command in ("report", "names"):
        done = fake_suite.run(fake_suite.ROOT, tmp_path, command, folder / "evidence.jsonl")
        assert r"a\x1b[31mb" in done.stdout + done.stderr, done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr


def test_an_edited_case_is_refused_before_anything_starts(tmp_path):
    fields = {"dtype": "\x1b[31m", "n": "x"}
    edited = {"type": "TransferCase", "fields": fields}
    path = tmp_path / "case.json"
    path.write_text(json.dumps({"id": case_id("", NODE, edited), "nodeid": NODE, "case": edited}))
    done = fake_suite.run(fake_suite.ROOT, tmp_path, "replay", path)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    assert "the field 'dtype' of a TransferCase must be one of 'fp16'" in line
