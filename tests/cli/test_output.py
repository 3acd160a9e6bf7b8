"""Failures of writing: a closed pipe, an ASCII stdout, a full disk, a removed folder, or a folder of another run."""

import io
import os
import resource
import subprocess
import sys

import psutil
import pytest

from command_line import main as cli
from command_line import output
from command_line.suite import process as suite_of_commands
from harness import runs
from harness.errors import UsageError
from tests.cli import fake_suite
from tests.cli.test_certify import start
from tests.evidence import samples

REPORTS = ("report.html", "junit.xml")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture
def evidence(tmp_path):
    """Write evidence of a green run whose table needs characters beyond ASCII; return its path."""
    return samples.write(tmp_path / "evidence.jsonl", samples.green())


def shell(suite, tmp_path, line, **variables):
    """Run a shell line in which $HARNESS is the command."""
    harness = " ".join(fake_suite.command())
    return subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env=fake_suite.environment(suite, HARNESS=harness, **variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_reader_that_goes_away_changes_neither_status_nor_files(suite, tmp_path):
    done = shell(suite, tmp_path, "$HARNESS certify | true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (0, "")
    assert all((tmp_path / "out" / "certify" / name).is_file() for name in REPORTS)
    assert shell(suite, tmp_path, "$HARNESS certify | true; exit ${PIPESTATUS[0]}", FAKE="fail").returncode == 1


def test_a_full_stdout_gives_one_line_and_status_1(suite, tmp_path, evidence):
    done = shell(suite, tmp_path, "$HARNESS report evidence.jsonl > /dev/full")
    assert (done.returncode, done.stderr) == (
        1, "iris-harness: stdout could not be written: No space left on device\n"
    )  # fmt: skip
    assert all((tmp_path / name).is_file() for name in REPORTS)


def test_a_closed_stdout(suite, tmp_path, evidence):
    done = shell(suite, tmp_path, "$HARNESS report evidence.jsonl >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
def test_characters_that_stdout_cannot_show_are_escaped(suite, tmp_path, evidence, variables):
    done = shell(suite, tmp_path, "$HARNESS report evidence.jsonl", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2" in done.stdout or "All 2 requirements passed" in done.stdout
    named = shell(suite, tmp_path, "$HARNESS check $'\\u00fc\\e[31m'", **variables)
    assert named.returncode == 2
    assert "\\x1b[31m" in named.stderr
    assert "Traceback" not in named.stderr


def test_reports_that_cannot_be_written_are_named_and_the_table_is_printed(suite, tmp_path, evidence):
    """Limit the size of files. The limit is above the size of the temporary files of ``output_folder``."""
    done = subprocess.run(
        fake_suite.command("report", "evidence.jsonl"),
        cwd=tmp_path,
        env=fake_suite.environment(suite),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert done.returncode == 1
    assert [line.rpartition(": ")[2] for line in done.stderr.splitlines()] == ["File too large"] * 2
    assert all(f"{name} could not be written" in done.stderr for name in REPORTS)
    assert "All 2 requirements passed" in done.stdout
    assert "Report:" not in done.stdout


def test_files_are_written_before_the_table(tmp_path, evidence, monkeypatch):
    """Check that the report files are complete before the table is printed, and stay if printing fails."""
    import reports

    def stops(*_):
        assert all((tmp_path / name).is_file() for name in REPORTS)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reports, "print_table", stops)
    assert cli.run(["report", str(evidence)]) == 1


def test_a_log_on_a_full_disk_does_not_stop_the_suite(tmp_path, monkeypatch):
    """Let the suite write more than a pipe holds: it would block for ever if the reader stopped at the error."""
    monkeypatch.setattr(suite_of_commands, "_fresh", lambda log: io.FileIO("/dev/full", "w"))
    code = "import sys; sys.stdout.write('line\\n' * 100_000)"
    with suite_of_commands.Suite([sys.executable, "-c", code], tmp_path / "log", dict(os.environ)) as running:
        assert running._process.wait(timeout=60) == 0
        running.join()
    assert running.log_problem == "No space left on device"
    assert running.tail[-1] == "line"


def test_a_removed_current_folder(suite, tmp_path):
    done = shell(suite, tmp_path, "mkdir gone; cd gone; rmdir ../gone; $HARNESS certify")
    assert done.returncode == 2
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("shell-init")]
    assert line.startswith("iris-harness: cannot write into out/certify (No such file or directory)")


def test_an_output_folder_that_is_removed_during_the_run(suite, tmp_path):
    done = fake_suite.run(suite, tmp_path, "certify", "--output", "here", fake="deleted")
    assert done.returncode == 1
    assert "left no evidence" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", REPORTS)
def test_a_link_in_place_of_a_report_is_refused_before_the_run(suite, tmp_path, name):
    (tmp_path / "here").mkdir()
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "here" / name).symlink_to(tmp_path / "mine")
    done = fake_suite.run(suite, tmp_path, "certify", "--output", "here")
    assert done.returncode == 2
    assert f"{name} is a symbolic link" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (tmp_path / "here" / "evidence.jsonl").exists()


@pytest.mark.parametrize("name", ["pytest.log", "evidence.jsonl"])
def test_other_links_in_the_output_folder_are_not_written_through(suite, tmp_path, name):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / name).symlink_to(tmp_path / "elsewhere")  # dangling: opening it would create the file
    done = fake_suite.run(suite, tmp_path, "certify", "--output", "here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_a_second_run_in_the_folder_is_refused_with_the_first_ones_process(suite, tmp_path):
    first, straggler = start(suite, tmp_path, "hang")
    try:
        live = (tmp_path / "here" / "evidence.jsonl").stat().st_ino
        second = fake_suite.run(suite, tmp_path, "certify", "--output", "here")
        assert second.returncode == 2
        assert f"here is in use by another run, process {first.pid}: " in second.stderr
        assert (tmp_path / "here" / "evidence.jsonl").stat().st_ino == live, "the first one's evidence is untouched"
        assert len(list((tmp_path / "here").glob("evidence*"))) == 1
    finally:
        first.kill()  # as in a crash: the claim ends with the process
        first.communicate()
        psutil.Process(straggler).kill()
    assert fake_suite.run(suite, tmp_path, "certify", "--output", "here").returncode == 0


def test_a_folder_is_claimed_by_one_process_and_links_are_not_followed(tmp_path):
    with runs.claimed(tmp_path):
        assert (tmp_path / runs.LOCK).read_text() == f"{os.getpid()}\n"
        with pytest.raises(UsageError, match=f"process {os.getpid()}"), runs.claimed(tmp_path):
            pytest.fail("claimed twice")
    with runs.claimed(tmp_path):
        pass
    other = tmp_path / "other"
    other.mkdir()
    (other / runs.LOCK).symlink_to(tmp_path / "target")
    with pytest.raises(UsageError, match="cannot write"), runs.claimed(other):
        pytest.fail("a link was followed")
    assert not (tmp_path / "target").exists()


def test_printed_evidence_has_no_control_characters():
    assert output.printable("a\x1b[31m\x9b\r\nü\u2028") == "a\\x1b[31m\\x9b\\r\\nü\\u2028"
