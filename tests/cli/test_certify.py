"""The command certify with the fake suite: exit status, files, printed words, and no process left behind."""

import os
import signal
import subprocess
import time

import psutil
import pytest
from junitparser import JUnitXml

from harness.evidence import Verdict, read
from tests.cli import fake_suite
from tests.evidence import samples


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


def test_a_green_run(suite, tmp_path):
    done = fake_suite.run(suite, tmp_path, "certify", "--ranks", "2,4", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    output = tmp_path / "out" / "certify"
    assert {path.name for path in output.iterdir()} == {
        "evidence.jsonl",
        "report.html",
        "junit.xml",
        "pytest.log",
        ".lock",
    }
    assert "All 2 requirements passed" in done.stdout
    assert f"Report: {output / 'report.html'}" in done.stdout
    evidence = read(output / "evidence.jsonl")
    assert evidence.verdict() is Verdict.PASS
    assert (evidence.runs[0].ranks, evidence.runs[0].seed) == ((2, 4), 7)
    assert JUnitXml.fromfile(str(output / "junit.xml")).tests == 2
    assert os.readlink(tmp_path / "out" / "latest") == "certify"


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        ("fail", ["1 of 2 requirements passed, 1 failed.", "rank 3, old value, index 17: got 5, expected 4", "repeat"]),
        ("gap", ["1 of 2 requirements passed, 1 did not run.", f"{samples.ADD_GROUP} did not run"]),
        ("segfault", ["was killed by SIGSEGV", "the run did not end"]),
        ("internal", ["planted internal error", "the run did not end"]),
        ("no-plan", ["nothing was planned"]),
    ],
)
def test_a_run_that_is_not_green(suite, tmp_path, fake, words):
    done = fake_suite.run(suite, tmp_path, "certify", "--output", "here", fake=fake)
    assert done.returncode == 1, done.stdout + done.stderr
    for word in words:
        assert word in done.stdout, done.stdout
    assert (tmp_path / "here" / "report.html").is_file()
    junit = JUnitXml.fromfile(str(tmp_path / "here" / "junit.xml"))
    assert junit.failures + junit.errors > 0
    assert "Traceback" not in done.stderr


def test_options_that_the_plugin_refuses_give_one_line_and_status_2(suite, tmp_path):
    done = fake_suite.run(suite, tmp_path, "certify", fake="usage")
    assert (done.returncode, done.stderr) == (2, "iris-harness: the plugin does not like this\n")


def test_earlier_evidence_is_kept_apart(suite, tmp_path):
    for fake, status in (("fail", 1), ("pass", 0), ("pass", 0)):
        assert fake_suite.run(suite, tmp_path, "certify", "--output", "here", fake=fake).returncode == status
    kept = sorted(path for path in (tmp_path / "here").glob("evidence.*.jsonl"))
    assert len(kept) == 2
    assert {read(path).verdict() for path in kept} == {Verdict.PASS, Verdict.FAIL}


def start(suite, tmp_path, fake):
    """Start certify, wait until it is in its hanging test, and return its process and the pid of a child that the test
    started in another process group."""
    process = subprocess.Popen(
        fake_suite.command("certify", "--output", "here"),
        cwd=tmp_path,
        env=fake_suite.environment(suite, fake),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 60
    note = tmp_path / "straggler"
    while time.monotonic() < deadline:
        if note.exists():
            return process, int(note.read_text())
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"the suite did not start: {process.communicate()[0]}")


def gone(pid, seconds=20):
    """Wait until a process has ended, and return True if it has; a zombie counts as ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_keeps_its_evidence_and_leaves_no_process(suite, tmp_path, number, status):
    process, straggler = start(suite, tmp_path, "hang")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == status, output
    assert "the evidence so far is kept" in output
    assert "Traceback" not in output
    evidence = read(tmp_path / "here" / "evidence.jsonl")
    assert evidence.requirements()[samples.PUT].verdict is Verdict.PASS
    assert evidence.requirements()[samples.ADD].verdict is Verdict.NOT_RUN
    assert (tmp_path / "here" / "report.html").is_file()
    assert children
    assert all(gone(child.pid) for child in children)
    assert gone(straggler)


def test_a_suite_that_does_not_listen_is_killed_by_a_second_interrupt(suite, tmp_path):
    process, straggler = start(suite, tmp_path, "deaf")
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None, "the command still waits for the suite"
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=15)[0]
    assert process.returncode == 130, output
    assert gone(straggler)


def test_the_suite_ends_when_the_command_is_killed(suite, tmp_path):
    process, straggler = start(suite, tmp_path, "hang")
    [child] = psutil.Process(process.pid).children()
    process.kill()
    process.communicate()
    try:
        assert gone(child.pid)
    finally:
        psutil.Process(straggler).kill()  # no rank: those end with their suite


def test_plain_progress_lines_without_a_terminal(suite, tmp_path):
    done = fake_suite.run(suite, tmp_path, "certify")
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_replay_by_id_by_prefix_and_by_file(suite, tmp_path):
    assert fake_suite.run(suite, tmp_path, "certify", fake="fail").returncode == 1
    bad = samples.failing_case()
    by_id = fake_suite.run(suite, tmp_path, "replay", bad.id)
    assert by_id.returncode == 0, by_id.stdout + by_id.stderr
    line = next(
        line for line in (tmp_path / "out/latest/evidence.jsonl").read_text().splitlines() if f'"id":"{bad.id}"' in line
    )
    (tmp_path / "case.json").write_text(line)
    for arguments in ((bad.id[:8],), ("case.json",), (bad.id, "--evidence", "out/certify/evidence.jsonl")):
        done = fake_suite.run(suite, tmp_path, "replay", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    assert fake_suite.run(suite, tmp_path, "replay", bad.id, fake="fail").returncode == 1


def test_report_is_written_again(suite, tmp_path):
    samples.write(tmp_path / "evidence.jsonl", samples.red())
    done = fake_suite.run(suite, tmp_path, "report", "evidence.jsonl", "--output", "again")
    assert done.returncode == 1
    assert (tmp_path / "again" / "report.html").read_text().count("got <code") == 1
    samples.write(tmp_path / "green.jsonl", samples.green())
    assert fake_suite.run(suite, tmp_path, "report", "green.jsonl", "--output", "again").returncode == 0
