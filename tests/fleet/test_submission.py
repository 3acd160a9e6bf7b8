"""Plans of fleets, the folder of a submission, and the judgment about failures and machines, without Slurm."""

import json
import os
import stat
import subprocess

import pytest

from command_line.fleet import attribution, health, job, plan, progress, scripts, slurm, submission
from command_line.main import run as command_line
from harness.errors import UsageError
from harness.evidence import Evidence, Group, PlannedGroup, Telemetry, Verdict, shards


def plan_file(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return path


SMALL = """
[run]
level = "ci"
ranks = 2
requirements = ["RMA-PUT-001", "HOST-INIT-001"]
[slurm]
partition = "night ly'$(touch x)"
cpus = 4
exclusive = true
[fleet]
shards = 3
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nlvl = 'gate'", r"\[run\]: unknown key 'lvl'; the keys are level, device"),
        ("[runs]\n", r"unknown table \[runs\]; the tables are run, slurm, fleet"),
        ("[fleet]\nshards = 'four'", r"\[fleet\] shards: expected a whole number, got 'four'"),
        ("[fleet]\nshards = -1", "expected a whole number"),
        ("[fleet]\nshards = true", "expected a whole number"),
        ("[fleet]\ndrain = 1", "expected true or false"),
        ("[fleet]\nhealth = 'check'", "expected a list of texts"),
        ("[fleet]\nattempts = 0", "attempts is from 1 to 100"),
        ('[run]\nlevel = "a\\nb"', "expected text of one line"),
        ("[run]\nranks = [2]", "expected text of one line"),
        ("run = 3", r"\[run\]: expected a table"),
        ("[run", "is not TOML"),
    ],
)
def test_a_plan_that_is_wrong_is_refused_in_one_line(tmp_path, text, words, capsys):
    path = plan_file(tmp_path, text)
    with pytest.raises(UsageError, match=words):
        plan.read_plan(path)
    assert command_line(["submit", str(path), "--nodes", "2", "--dry-run", "--output", str(tmp_path / "out")]) == 2
    answer = capsys.readouterr().err
    assert answer.count("\n") == 1 and str(path) in answer
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nlevel = 'gat'", "gat"),
        ("[run]\ndevice = 'rocm'", "profile or ranks: one of both is needed"),
        ("[run]\nlevel = 'stress'", "name one for all shards with --seed"),
        ("[run]\nrequirements = ['X-1']", "the suite has no requirement 'X-1'"),
        ("[run]\nweights = 'absent.jsonl'", "cannot be read"),
    ],
)
def test_a_run_that_no_machine_can_have_is_refused_before_anything_is_written(tmp_path, text, words, capsys):
    path = plan_file(tmp_path, text)
    assert command_line(["submit", str(path), "--nodes", "2", "--dry-run", "--output", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_gpus_are_not_needed_to_plan_for_them(tmp_path):
    path = plan_file(tmp_path, "[run]\nlevel = 'gate'\ndevice = 'rocm'\nprofile = 'mi300x-8'\n")
    division, text = plan.read_plan(path).division(2)
    assert division.request["ranks"] == [8]
    assert "ranks=8" in text and "ranks=4" not in text


def test_a_submission_has_a_folder_of_its_own_and_safe_scripts(tmp_path):
    path = plan_file(tmp_path, SMALL)
    folder = tmp_path / "a b'c"
    made = submission.create(path, 2, folder)
    scripts.write(folder)
    assert made.state.of == 3
    division = shards.DivisionFile(folder / shards.FILE).division
    assert division.digest == made.state.plan
    assert set(division.mandatory) == {"HOST-INIT-001[ranks=2]", "RMA-PUT-001[ranks=2,dtype=bf16]"}
    for name in (submission.TASK, submission.MERGE, submission.AGAIN, submission.ATTRIBUTE):
        subprocess.run(["sh", "-n", folder / name], check=True)
        assert "'\"'\"'" in (folder / name).read_text(), "the quote in the path is escaped"
    options = made.plan.slurm.options()
    assert options == ["--partition=night ly'$(touch x)", "--cpus-per-task=4", "--exclusive"]
    assert made.plan.slurm.options(merge=True) == options[:1]
    with pytest.raises(UsageError, match="exists already"):
        submission.create(path, 2, folder)
    with pytest.raises(UsageError, match="is not the folder of a submission"):
        submission.load(tmp_path)
    with pytest.raises(UsageError, match="without control characters"):
        submission.create(path, 2, tmp_path / "x%a")


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """Put programs with Slurm's names into the PATH, which record their arguments; return the folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {
        "sbatch": 'n=$(cat "$D/n" 2>&- || echo 100); echo $((n+1)) > "$D/n"; echo $((n+1)); [ ! -e "$D/refuse$n" ]',
        "squeue": '[ ! -e "$D/queue" ] || cat "$D/queue"',
        "scancel": "",
        "scontrol": 'case "$*" in "show config") echo "RequeueExit = 1,75";; *) [ ! -e "$D/deny" ];; esac',
    }
    for name, text in scripts.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nD={folder}\necho "{name} $*" >> "$D/calls"\n{text}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def made(tmp_path, fake_slurm):
    return submission.start(submission.create(plan_file(tmp_path, SMALL), 2, tmp_path / "out"))


def test_the_jobs_of_a_submission(made, fake_slurm, tmp_path, capsys):
    array, merge = (fake_slurm / "calls").read_text().splitlines()
    for word in ("--array=1-3%2", "--requeue", "--signal=B:TERM@60", "--cpus-per-task=4", "shard-%a.log"):
        assert word in array
    assert "--dependency=afterany:101" in merge and "--cpus-per-task" not in merge
    assert submission.load(tmp_path / "out").state.jobs == {"array": "101", "merge": "102"}
    (fake_slurm / "queue").write_text("101_1|PENDING||BeginTime|2026-11-25T02:00:00\n101_2|RUNNING|n2|None|N/A\n")
    assert command_line(["status", str(tmp_path / "out")]) == 1
    answer = capsys.readouterr().out
    assert "1 lost, 1 pending, 1 running" in answer and "logs/shard-3.log" in answer
    submission.write_json(made.path(submission.HEALTH, "1.0.json"), {
        "node": "n7", "shard": 1, "attempt": 0, "reason": "ecc", "time": 1.0, "drained": False, "command": "scontrol x",
    })  # fmt: skip
    command_line(["status", str(tmp_path / "out"), "--release"])
    answer = capsys.readouterr().out
    assert "shard 1: released" in answer and "n7: ecc; to drain it: scontrol x" in answer
    assert "scontrol update JobId=101_1 StartTime=now ExcNodeList=n7" in (fake_slurm / "calls").read_text()
    assert command_line(["cancel", str(tmp_path / "out")]) == 0
    assert "scancel 102" in (fake_slurm / "calls").read_text()


def test_an_array_without_its_merge_is_cancelled(tmp_path, fake_slurm):
    (fake_slurm / "refuse101").touch()
    with pytest.raises(UsageError, match="sbatch failed"):
        submission.start(submission.create(plan_file(tmp_path, SMALL), 2, tmp_path / "out"))
    assert "scancel 101" in (fake_slurm / "calls").read_text()


def on_node(monkeypatch, index=1, attempt=0):
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(index))
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "101")
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(attempt))
    monkeypatch.setenv("SLURMD_NODENAME", "n5")


@pytest.mark.parametrize("allowed", [True, False])
def test_a_machine_that_is_not_healthy(made, monkeypatch, capsys, fake_slurm, allowed):
    monkeypatch.setattr(health, "examine", lambda *_: "no GPU")
    monkeypatch.setattr(job, "certify", lambda *_: pytest.fail("a shard started on a broken machine"))
    made = submission.Submission(made.folder, plan.Plan(fleet=plan.FleetPlan(drain=True)), made.state)
    if not allowed:
        (fake_slurm / "deny").touch()
    on_node(monkeypatch)
    assert job.run_shard(made) == slurm.INFRASTRUCTURE == 75
    answer = capsys.readouterr().out
    assert "n5 is not healthy before the shard: no GPU" in answer
    assert ("drained: scontrol" if allowed else "To drain it: scontrol update NodeName=n5 State=DRAIN") in answer
    [finding] = made.findings()
    assert (finding["node"], finding["drained"], finding["reason"]) == ("n5", allowed, "no GPU")
    on_node(monkeypatch, attempt=2)
    assert job.run_shard(made) == 1, "not for ever"


def test_only_the_first_attempt_that_ends_counts(made, monkeypatch):
    from tests.fleet import shard_samples

    monkeypatch.setattr(health, "examine", lambda *_: None)
    ran = []

    def certify(_, index, node, work):
        ran.append(node)
        shard_samples.write(work, index)
        if len(ran) == 1:  # while it runs, the attempt of a node that was lost comes to its end
            shard_samples.write(made.path(submission.SHARDS, str(index)), index)
            submission.write_json(
                made.path(submission.SHARDS, str(index), submission.RESULT), {"exit": 0, "node": "n9"}
            )
        return 3

    monkeypatch.setattr(job, "certify", certify)
    on_node(monkeypatch, 2)
    assert job.run_shard(made) == 0
    assert made.result(2)["node"] == "n9" and made.path(submission.WORK, "2.0").is_dir()
    assert job.run_shard(made) == 0 and len(ran) == 1, "a requeued task does not run what has ended"
    on_node(monkeypatch, 3)
    assert job.run_shard(made) == 0
    assert made.result(3)["node"] == "n5" and not made.path(submission.WORK, "3.0").exists()


@pytest.mark.parametrize(("status", "kept"), [(143, False), (2, False), (1, True)])
def test_a_shard_that_did_not_end_does_not_count(made, monkeypatch, status, kept):
    from tests.fleet import shard_samples

    def certify(_, index, node, work):
        work.mkdir()
        if kept:
            shard_samples.write(work, index, verdicts={shard_samples.NAMES[1]: Verdict.FAIL})
        return status

    monkeypatch.setattr(health, "examine", lambda *_: None)
    monkeypatch.setattr(job, "certify", certify)
    on_node(monkeypatch, 2)
    assert job.run_shard(made) == status
    assert (made.finished() == [2]) is kept


def test_evidence_that_shows_a_broken_machine():
    groups = {"A-1[ranks=2]": [Group("A-1[ranks=2]", "A-1", Verdict.UNKNOWN, 1, message="the ranks did not start")]}
    planned = {"A-1[ranks=2]": PlannedGroup("A-1[ranks=2]", "A-1", "a")}
    assert health.of_evidence(Evidence(plan=planned, groups=groups)) == "no case ran: the ranks did not start"
    assert health.of_evidence(Evidence(plan=planned)) == "no case ran: the ranks did not start"
    passed = {"A-1[ranks=2]": [Group("A-1[ranks=2]", "A-1", Verdict.FAIL, 1)]}
    assert health.of_evidence(Evidence(plan=planned, groups=passed)) is None, "a failure is the library's"
    marks = Telemetry("nvml", {}, (), ("memory error (RAS/ECC): ecc_uncorrected +1",))
    assert "ecc_uncorrected +1" in health.of_evidence(Evidence(plan=planned, groups=passed, telemetry=[marks]))
    mild = Telemetry("nvml", {}, (), ("memory error (RAS/ECC): ecc_corrected +1",))
    assert health.of_evidence(Evidence(plan=planned, groups=passed, telemetry=[mild])) is None


def test_a_health_command(tmp_path):
    assert health.examine("emulated", ["true"], False) is None
    assert health.examine("emulated", ["sh", "-c", "echo; echo two XIDs; exit 3"], False) == "sh: two XIDs"
    assert health.examine("emulated", ["false"], False) == "false: exit status 1"
    assert "No such file" in health.examine("emulated", [str(tmp_path / "absent")], False)


@pytest.mark.parametrize(
    ("other", "again", "answer"),
    [
        ("pass", "fail", attribution.MACHINE),
        ("fail", "fail", attribution.SOFTWARE),
        ("pass", "pass", attribution.SOMETIMES),
        ("fail", "pass", attribution.SOMETIMES),
        (None, "fail", attribution.UNKNOWN),
        ("pass", None, attribution.UNKNOWN),
        ("unknown", "fail", attribution.UNKNOWN),
        ("flaky", "fail", attribution.UNKNOWN),
    ],
)
def test_node_or_software(other, again, answer):
    assert attribution.classify(other, again) == answer


def test_the_report_about_failed_groups(made):
    name = "RMA-PUT-001[ranks=2,dtype=fp16]"
    submission.write_json(made.path("attribution", "1.json"), {"node": "n1", "groups": [name]})
    [each] = attribution.attributed(made)
    assert each.answer == attribution.UNKNOWN
    submission.write_json(made.path("attribution", "1-other.json"), {"node": "n2", "verdicts": {name: "pass"}})
    submission.write_json(made.path("attribution", "1-same.json"), {"node": "n3", "verdicts": {name: "fail"}})
    assert attribution.attributed(made)[0].answer == attribution.UNKNOWN, "it ran again, but not on the first machine"
    submission.write_json(made.path("attribution", "1-same.json"), {"node": "n1", "verdicts": {name: "fail"}})
    [line] = attribution.in_words(attribution.attributed(made))
    assert line.startswith(f"{name}: fail on n1, pass on n2, fail on n1 again: the machine")
    assert attribution.report(made) == 0
    assert json.loads(made.path("attribution", "report.json").read_text())["groups"][0]["answer"] == "machine"


def test_failed_groups_by_node():
    evidence = Evidence(nodes={"A-1[ranks=2]": "n1", "A-1[ranks=4]": "n2"})
    evidence.groups = {
        "A-1[ranks=2]": [Group("A-1[ranks=2]", "A-1", Verdict.FAIL, 1)],
        "A-1[ranks=4]": [Group("A-1[ranks=4]", "A-1", Verdict.PASS, 1)],
    }
    assert attribution.failed_by_node(evidence) == {"n1": ["A-1[ranks=2]"]}


def test_a_state_that_ended_has_a_status(made, fake_slurm):
    assert progress.RUNNING == 3
    submission.write_json(made.path("merged", "result.json"), {"exit": 0, "shards": [1, 2, 3]})
    assert command_line(["status", str(made.folder)]) == 0
    submission.write_json(made.path("merged", "result.json"), {"exit": 1, "shards": [1]})
    assert command_line(["status", str(made.folder)]) == 1


def test_without_slurm(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_line(["submit", str(plan_file(tmp_path, SMALL)), "--nodes", "2"]) == 2
    assert "sbatch is not installed" in capsys.readouterr().err
