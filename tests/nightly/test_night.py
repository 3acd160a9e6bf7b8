"""Nights through the command, on a fake suite: crashes, signals, resumption, the corpus, the history."""

import json
import os
import signal
import subprocess
import time

import pytest

from command_line.nightly.union import attempts_of
from harness.evidence import read
from history import History, changes, nights
from tests.cli import fake_suite
from tests.evidence.samples import ADD_GROUP, PUT_GROUP, failing_case

PLAN = """
name = "fake"
[[leg]]
name = "first"
budget = "5m"
ranks = 4
"""
LEG = ("legs", "first")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


def night(suite, tmp_path, *arguments, fake="pass", run="", **extra):
    words = ["nightly", "plan.toml", "--node", "n1", *arguments]
    return fake_suite.run(suite, tmp_path, *words, fake=fake, FAKE_RUN=run, **extra)


def interrupted(suite, tmp_path, number, fake="hang"):
    """Begin a night whose second group hangs, and end its process by signal ``number``."""
    environment = fake_suite.environment(suite, fake)
    process = subprocess.Popen(
        fake_suite.command("nightly", "plan.toml", "--node", "n1", "--output", "night"), cwd=tmp_path, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "straggler").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    straggler = int((tmp_path / "straggler").read_text())
    (tmp_path / "straggler").unlink()
    while number == signal.SIGTERM and _alive(straggler):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if number == signal.SIGKILL:  # no process is left that could kill it: the tests do
        os.kill(straggler, signal.SIGKILL)
    return process.returncode, out, err


def _alive(pid):
    try:
        return "Z" not in open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_night_passes_and_is_in_the_history_once(suite, plan, tmp_path):
    done = night(suite, tmp_path, "--seed", "7", "--output", "night")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 7" in done.stdout and "| first | pass | 2 pass |" in done.stdout
    assert json.loads((tmp_path / "night" / "summary.json").read_text())["status"] == 0
    assert {"report.html", "junit.xml"} <= {path.name for path in (tmp_path / "night" / "legs" / "first").iterdir()}
    with History(tmp_path / "history.sqlite") as history:
        [each] = nights(history)
        assert each.counts == {"pass": 2} and each.nodes == ("n1",) and each.runs == 1
    again = night(suite, tmp_path, "--output", "night")
    assert again.returncode == 2 and "is finished since" in again.stderr and len(again.stderr.splitlines()) == 1


@pytest.mark.nightly
def test_new_seeds_every_night_and_the_same_from_the_same_seed(suite, plan, tmp_path):
    seeds = []
    for number, given in enumerate((["--seed", "7"], ["--seed", "7"], [], [])):
        assert night(suite, tmp_path, *given, "--output", f"n{number}", run=str(number)).returncode == 0
        seeds.append(read(tmp_path.joinpath(f"n{number}", *LEG, "1", "evidence.jsonl")).runs[0].seed)
    assert seeds[0] == seeds[1] and len(set(seeds)) == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["crash", "preemption"])
def test_an_interrupted_night_continues_and_no_group_is_lost_or_runs_twice(suite, plan, tmp_path, number):
    status, _, err = interrupted(suite, tmp_path, number)
    assert status == (-9 if number == signal.SIGKILL else 143)
    if number == signal.SIGTERM:
        assert "to continue: iris-harness nightly plan.toml --output" in err and len(err.splitlines()) == 1
    deadline = time.monotonic() + 30
    done = night(suite, tmp_path, "--output", "night", run="2")
    while done.returncode == 2 and "in use" in done.stderr and time.monotonic() < deadline:
        done = night(suite, tmp_path, "--output", "night", run="2")  # the suite of the killed night still ends
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continues" in done.stdout and "2 attempts" in done.stdout
    attempts = attempts_of(tmp_path.joinpath("night", *LEG))
    assert [list(each.groups) for each in attempts.each] == [[PUT_GROUP], [ADD_GROUP]]
    with History(tmp_path / "history.sqlite") as history:
        [each] = nights(history)
        assert each.counts == {"pass": 2} and each.runs == 2


@pytest.mark.slow
def test_a_run_that_dies_is_continued_and_then_given_up(suite, plan, tmp_path):
    done = night(suite, tmp_path, "--output", "night", fake="segfault")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "was killed by SIGSEGV (exit status" in done.stdout or "killed by SIGSEGV" in done.stdout
    assert "the run died, and did so again when it was continued" in done.stdout
    assert [path.name for path in sorted(tmp_path.joinpath("night", *LEG).iterdir()) if path.is_dir()] == [
        "1",
        "2",
        "3",
    ]


@pytest.mark.slow
def test_a_refused_leg_is_red_and_the_night_ends(suite, plan, tmp_path):
    done = night(suite, tmp_path, "--output", "night", fake="usage")
    assert done.returncode == 1 and "the plugin does not like this" in done.stdout
    assert json.loads((tmp_path / "night" / "night.json").read_text())["finished"]


@pytest.mark.slow
def test_a_failure_goes_into_the_corpus_runs_first_and_is_mended(suite, plan, tmp_path):
    plan.write_text(PLAN + "[corpus]\nmended_after = 2\n")
    bad = failing_case()
    cases = tmp_path.joinpath("one", *LEG, "1", "cases")
    first = night(suite, tmp_path, "--output", "one", fake="fail", run="1")
    assert first.returncode == 1 and "1 new failures" in first.stdout and "1 fail" in first.stdout
    # The fake suite writes no case files: the file is put there as the real one does.
    record = {"id": bad.id, "requirement": bad.requirement, "group": bad.group, "nodeid": bad.nodeid, "case": bad.case}
    cases.mkdir()
    (cases / f"{bad.id}.json").write_text(json.dumps(record))
    state = json.loads((tmp_path / "one" / "night.json").read_text())
    (tmp_path / "one" / "night.json").write_text(json.dumps({**state, "finished": None}))
    assert "added: " + bad.id in night(suite, tmp_path, "--output", "one", fake="fail", run="1").stdout
    assert (tmp_path / "corpus" / f"{bad.id}.json").exists()

    second = night(suite, tmp_path, "--output", "two", fake="pass", run="2")
    assert second.returncode == 0, second.stdout + second.stderr
    lines = second.stdout.splitlines()
    ran = [place for place, line in enumerate(lines) if line.startswith(f"corpus: {bad.id}")]
    assert ran and ran[0] < lines.index(next(line for line in lines if line.startswith("first: ")))
    assert "mended: it passed" not in second.stdout
    with History(tmp_path / "history.sqlite") as history:
        rows = history.rows("SELECT name, verdict FROM verdict JOIN run ON run.id = run WHERE leg = 'corpus'")
    assert [(row["name"], row["verdict"]) for row in rows] == [(f"{ADD_GROUP} case {bad.id}", "pass")]
    index = json.loads((tmp_path / "corpus" / "index.json").read_text())
    assert set(index["cases"]) == {bad.id}
    order = json.loads(tmp_path.joinpath("two", *LEG, "1", "order.json").read_text())
    assert order["first"] == [ADD_GROUP]

    date = json.loads((tmp_path / "two" / "night.json").read_text())["name"]
    index["cases"][bad.id]["nights"] = {"2026-01-01": "fail", "2026-01-02": "pass", date: "pass"}
    (tmp_path / "corpus" / "index.json").write_text(json.dumps(index))
    third = night(suite, tmp_path, "--output", "three", fake="pass", run="3")
    assert f"{bad.id}.json can be removed from the corpus" in third.stdout
    assert (tmp_path / "corpus" / f"{bad.id}.json").exists(), "not deleted silently"


@pytest.mark.slow
def test_what_changed_is_reported_against_the_nights_before(suite, plan, tmp_path):
    assert night(suite, tmp_path, "--output", "out/nightly/x", run="1").returncode == 0
    with History(tmp_path / "history.sqlite") as history:
        history.execute("UPDATE run SET night = '2026-01-01', started = '2026-01-01T02:00:00Z'")
    done = night(suite, tmp_path, "--output", "two", fake="fail", run="2")
    assert done.returncode == 1 and f"new failure: {ADD_GROUP}" in done.stdout
    with History(tmp_path / "history.sqlite") as history:
        assert [entry.group for entry in changes(history).failed] == [ADD_GROUP]


@pytest.mark.nightly
def test_another_plan_seed_or_folder_is_refused(suite, plan, tmp_path):
    interrupted(suite, tmp_path, signal.SIGTERM)
    for change, words, message in (
        ("", ["--seed", "1"], "and --seed is 1"),
        ("", ["--new"], "the night is unfinished"),
        ("# changed\n", [], "is a night of another plan"),
    ):
        plan.write_text(PLAN + change)
        done = night(suite, tmp_path, "--output", "night", *words)
        assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    done = night(suite, tmp_path, "--output", "full")
    assert done.returncode == 2 and "has files and no night.json" in done.stderr


@pytest.mark.nightly
def test_the_unfinished_night_of_today_is_continued_without_an_output(suite, plan, tmp_path):
    done = night(suite, tmp_path, run="1")
    [folder] = (tmp_path / "out" / "nightly").iterdir()
    assert done.returncode == 0
    state = json.loads((folder / "night.json").read_text())
    (folder / "night.json").write_text(json.dumps({**state, "finished": None}))
    again = night(suite, tmp_path, run="1")
    assert again.returncode == 0 and "continues" in again.stdout
    fresh = night(suite, tmp_path, run="2")
    assert "begins" in fresh.stdout and len(list((tmp_path / "out" / "nightly").iterdir())) == 2


def test_a_history_of_a_newer_schema_is_refused_before_anything_runs(suite, plan, tmp_path):
    assert night(suite, tmp_path, "--output", "one").returncode == 0
    with History(tmp_path / "history.sqlite") as history:
        history.execute("PRAGMA user_version = 9")
    before = (tmp_path / "history.sqlite").read_bytes()
    done = night(suite, tmp_path, "--output", "two")
    assert done.returncode == 2 and "has schema 9, and this version of iris-harness reads up to 1" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "two").exists()
    assert (tmp_path / "history.sqlite").read_bytes() == before
