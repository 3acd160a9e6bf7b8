"""A history: runs in, once each; merged, exported, migrated; and what it answers."""

import csv
import dataclasses
import io
import json
import sqlite3

import pytest

import history
from command_line.main import run as command
from harness.errors import UsageError
from harness.evidence import Run, Verdict
from history import History, Origin, database
from tests.evidence import samples
from tests.evidence.samples import ADD_GROUP, PUT_GROUP
from tests.history import planted
from tests.history.planted import BREAKS, BROKEN, COMMITS, FLAKY, MENDED, MENDS, NODE, STEADY, night_of

BENCH = {
    "schema": 1,
    "request": {
        "op": "all_gather", "device": "rocm", "arch": "gfx942", "ranks": 8, "dtype": "fp16", "implementation": "x",
    },
    "semantics": "A time is that of one call.",
    "started": "2026-11-21T04:00:00Z",
    "finished": "2026-11-21T04:10:00Z",
    "environment": {"packages": {"triton": "3.9.0", "torch": "2.13.0"}, "commit": "1" * 40},
    "sizes": [
        {
            "bytes": 1048576,
            "cells": [
                {"backend": "iris", "cus": 32, "config": {}, "status": "ok", "median_us": 100.0, "p10_us": 90.0,
                 "p90_us": 125.0, "algbw_gbs": 10.0, "busbw_gbs": 80.0, "ratio_to_nccl": 1.25,
                 "times_us": [[100.0, 99.0]]},
                {"backend": "nccl", "cus": None, "config": {}, "status": "wrong", "times_us": []},
            ],
        }
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return planted.plant(tmp_path_factory.mktemp("history") / "h.sqlite")


@pytest.fixture
def opened(file):
    with History(file) as opened:
        yield opened


def test_evidence_is_added_once_with_what_it_was_made_with(tmp_path):
    evidence = samples.write(tmp_path / "evidence.jsonl", samples.on_gpus())
    with History(tmp_path / "h.sqlite", create=True) as opened:
        assert history.add(opened, evidence, Origin("node-a", "gate"))
        before = history.export_json(opened)
        assert not history.add(opened, evidence, Origin("node-b", "other"))
        assert history.export_json(opened) == before
        [run] = opened.rows("SELECT * FROM run")
        assert (run["node"], run["night"], run["triton"], run["driver"]) == ("node-a", "2026-11-21", "3.9.0", "580.159")
        assert run["library_commit"] == "0" * 40 and run["gpus"] == " ".join(samples.GPUS)
        assert [row["verdict"] for row in opened.rows("SELECT verdict FROM verdict")] == ["pass", "pass"]
        assert {row["kernel"] for row in opened.rows("SELECT kernel, registers FROM kernel")} == {"put_kernel"}
        names = history.metrics(opened, "telemetry.*")
        assert f"telemetry.power {samples.GPUS[0]}" in names and f"telemetry.energy {samples.GPUS[0]}" in names


def test_a_repeated_case_is_not_the_verdict_of_its_group(tmp_path):
    """A case of the corpus that fails, and its group that passes: the group is neither bad nor flaky."""
    first, *rest = samples.red()
    assert isinstance(first, Run)
    with History(tmp_path / "h.sqlite", create=True) as opened:
        assert history.add(opened, samples.write(tmp_path / "a.jsonl", samples.green()), Origin("node-a", "gate"))
        again = samples.write(tmp_path / "b.jsonl", [dataclasses.replace(first, id="again"), *rest])
        assert history.add(opened, again, Origin("node-a", "corpus"), case="0123456789abcdef")
        rows = opened.rows("SELECT name, verdict FROM verdict ORDER BY name, run")
        bad = [row["name"] for row in rows if row["verdict"] == "fail"]
        assert bad == [f"{samples.ADD_GROUP} case 0123456789abcdef"]
        assert history.flaky(opened) == []


def test_a_soak_has_a_verdict_and_measures(tmp_path):
    evidence = samples.write(tmp_path / "evidence.jsonl", samples.green())
    result = history.Soak(
        Verdict.FAIL, 30, 90, 60.0, {"memory": 5e6, "files": 12.0}, {"RMA": 1.5}, "python 7 grew by 12 files"
    )
    with History(tmp_path / "h.sqlite", create=True) as opened:
        assert history.add_soak(opened, evidence, result, Origin("node-a", "soak", "one"))
        assert not history.add_soak(opened, evidence, result, Origin("node-a", "soak", "one"))
        [failed] = history.changes(opened, "one").failed
        assert (failed.group, failed.message) == ("soak", "python 7 grew by 12 files")
        assert history.metrics(opened, "soak.*") == [
            f"soak.{name}" for name in ("cases", "growth.files", "growth.memory", "rounds", "seconds.RMA")
        ]


def test_a_run_that_had_not_ended_is_replaced_by_its_longer_file_and_an_edited_one_is_refused(tmp_path):
    records = samples.green()
    part = samples.write(tmp_path / "part.jsonl", records[:7])
    whole = samples.write(tmp_path / "whole.jsonl", records)
    other = samples.write(tmp_path / "other.jsonl", [samples.run(seed=99), *records[1:]])
    with History(tmp_path / "h.sqlite", create=True) as opened:
        assert history.add(opened, part)
        assert [row["verdict"] for row in opened.rows("SELECT verdict FROM verdict")] == ["not_run", "pass"]
        assert history.add(opened, whole)
        assert [row["verdict"] for row in opened.rows("SELECT verdict FROM verdict")] == ["pass", "pass"]
        with pytest.raises(UsageError, match="one of both was edited"):
            history.add(opened, other)


def test_a_benchmark_brings_bandwidth_and_latency_with_spread(tmp_path):
    (tmp_path / "bench.json").write_text(json.dumps(BENCH, indent=1))
    with History(tmp_path / "h.sqlite", create=True) as opened:
        assert history.add(opened, tmp_path / "bench.json", Origin("n", "bench"))
        assert not history.add(opened, tmp_path / "bench.json", Origin("n", "bench"))
        [series] = history.series(opened, "bench.all_gather.fp16.8.1048576.iris.32cus.busbw_gbs")
        [point] = series.points
        assert (point.value, point.low, point.high) == (80.0, 64.0, pytest.approx(88.888, abs=0.01))
        assert not [name for name in history.metrics(opened) if "nccl.b" in name], "a wrong output has no bandwidth"


@pytest.mark.parametrize(
    "content", [b"", b"not evidence\n", b'{"semantics": 1, "schema": 1}', b'{"semantics": 1, "schema": 7}']
)
def test_other_files_are_refused_in_one_line(tmp_path, content, capsys):
    (tmp_path / "x").write_bytes(content)
    assert command(["history", "add", str(tmp_path / "x"), "--file", str(tmp_path / "h.sqlite")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    with History(tmp_path / "h.sqlite", create=True) as opened:
        assert opened.rows("SELECT * FROM run") == []


def test_damaged_evidence_is_refused(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green())
    path.write_bytes(path.read_bytes().replace(b'"seconds":0.25', b'"seconds":0.26', 1))
    with History(tmp_path / "h.sqlite", create=True) as opened, pytest.raises(UsageError, match="is damaged"):
        history.add(opened, path)


def test_a_later_schema_another_database_and_no_database_are_refused_and_unchanged(tmp_path, capsys):
    later, other, text = tmp_path / "later", tmp_path / "other", tmp_path / "text"
    with History(later, create=True) as opened:
        opened.execute("PRAGMA user_version = 2")
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    text.write_text("a letter\n" * 100)
    for path, reason in ((later, "has schema 2"), (other, "of another program"), (text, "is not a history")):
        before = path.read_bytes()
        for words in (["nights"], ["add", str(text)], ["merge", str(later)]):
            assert command(["history", *words, "--file", str(path)]) == 2
            error = capsys.readouterr().err
            assert reason in error and str(path) in error and len(error.splitlines()) == 1
        assert path.read_bytes() == before


def test_a_file_of_an_earlier_schema_is_migrated(tmp_path, monkeypatch):
    planted.plant(tmp_path / "h", nights=2)
    monkeypatch.setitem(database.MIGRATIONS, 2, "ALTER TABLE run ADD COLUMN firmware TEXT;")
    monkeypatch.setattr(database, "VERSION", 2)
    with History(tmp_path / "h") as opened:
        assert opened.rows("SELECT firmware FROM run LIMIT 1")[0]["firmware"] is None
        assert [dict(row) for row in opened.rows("PRAGMA user_version")] == [{"user_version": 2}]
        assert len(history.nights(opened)) == 2


def test_histories_of_shards_merge_in_any_order_and_twice(tmp_path):
    whole = planted.plant(tmp_path / "whole", nights=6)
    for node in ("a", "b"):
        with History(planted.plant(tmp_path / node, nights=6)) as opened:
            opened.execute("DELETE FROM run WHERE node = ?", f"node-{'b' if node == 'a' else 'a'}")
    texts = []
    for name, order in (("x", "ab"), ("y", "ba"), ("z", "aab")):
        with History(tmp_path / name, create=True) as opened:
            assert [history.merge(opened, tmp_path / node) for node in order][-1] == 12
            texts.append(history.export_json(opened))
    with History(whole) as opened:
        assert {*texts} == {history.export_json(opened)}


def test_histories_with_different_files_of_one_run_do_not_merge(tmp_path):
    planted.plant(tmp_path / "a", nights=2)
    with History(planted.plant(tmp_path / "b", nights=3)) as opened:
        opened.execute("UPDATE run SET digest = 'other' WHERE id = 'suite-0-node-a'")
    with (
        History(tmp_path / "a") as opened,
        pytest.raises(UsageError, match="different files of the run suite-0-node-a"),
    ):
        history.merge(opened, tmp_path / "b")
    with History(tmp_path / "a") as opened:
        assert len(history.nights(opened)) == 2


def test_the_export_has_everything_and_no_formula(tmp_path, file):
    with History(tmp_path / "h", create=True) as opened:
        history.merge(opened, file)
        opened.execute("UPDATE verdict SET name = '=1+1' WHERE name = ?", STEADY)
        plain, table = json.loads(history.export_json(opened)), history.export_csv(opened)
    assert plain["schema"] == 1 and len(plain["run"]) == 120
    rows = list(csv.DictReader(io.StringIO(table)))
    assert len(rows) == len(plain["verdict"]) and "'=1+1" in {row["name"] for row in rows}


def test_changes_of_a_night(opened):
    changed = history.changes(opened, night_of(BREAKS))
    assert [entry.group for entry in changed.failed if entry.group in (BROKEN, MENDED, STEADY)] == [BROKEN]
    assert MENDED in [entry.group for entry in history.changes(opened, night_of(MENDS)).mended]
    assert BROKEN in [entry.group for entry in history.changes(opened, night_of(BREAKS + 1)).still]
    with pytest.raises(UsageError, match="has no night '2020-01-01'"):
        history.changes(opened, "2020-01-01")


def test_a_group_is_compared_with_the_last_night_in_which_it_ran(tmp_path):
    with History(planted.plant(tmp_path / "h", nights=5)) as opened:
        opened.execute("UPDATE verdict SET verdict = 'not_run' WHERE name = ? AND run LIKE 'suite-3-%'", MENDED)
        opened.execute("UPDATE verdict SET verdict = 'pass' WHERE name = ? AND run LIKE 'suite-4-%'", MENDED)
        assert MENDED in [entry.group for entry in history.changes(opened, night_of(3)).not_run]
        assert MENDED in [entry.group for entry in history.changes(opened, night_of(4)).mended]


def test_first_bad_names_night_commit_and_nodes(opened, file, capsys):
    [bad] = history.first_bad(opened, BROKEN)
    assert bad.bad.night == night_of(BREAKS) and bad.good.night == night_of(BREAKS - 1)
    assert bad.good.commits == (COMMITS[BREAKS - 1],) and bad.bad.commits == (COMMITS[BREAKS],)
    assert bad.streak == BREAKS and bad.chance < 0.01
    assert history.first_bad(opened, MENDED) == []
    assert command(["history", "first-bad", BROKEN, "--file", str(file)]) == 1
    shown = capsys.readouterr().out
    assert f"first bad night  {night_of(BREAKS)}, on node-a, node-b" in shown
    assert f"--good {COMMITS[BREAKS - 1][:12]} --bad {COMMITS[BREAKS][:12]}" in shown
    assert command(["history", "first-bad", "NO-SUCH-001", "--file", str(file)]) == 2


def test_the_first_bad_night_of_a_rare_failure_is_uncertain(tmp_path):
    with History(tmp_path / "h", create=True) as opened:
        for number in range(6):
            row = planted.verdict_row(STEADY, "fail" if number in (1, 5) else "pass")
            history.adding.insert(opened, planted.run_row(number, "n"), {"verdict": [row]}, tmp_path)
        [bad] = history.first_bad(opened, STEADY)
    assert bad.bad.night == night_of(5) and bad.streak == 3 and bad.bad_nights == 2
    assert bad.chance > 0.02


def test_flaky_groups_with_their_rate(opened):
    rates = {each.group: each for each in history.flaky(opened)}
    assert set(rates) == {FLAKY, NODE}, "a group that broke for good is not flaky"
    assert 0.05 < rates[FLAKY].low < rates[FLAKY].rate < rates[FLAKY].high < 0.6


def test_a_bad_node_stands_out(opened):
    nodes = history.nodes(opened)
    assert nodes["node-b"]["alone"] >= 10 > nodes["node-a"]["alone"]
    assert nodes["node-b"]["marks"] == 5 and nodes["node-a"]["marks"] == 0
    [entry] = [
        e
        for e in history.changes(opened, night_of(27)).still + history.changes(opened, night_of(27)).failed
        if e.group == NODE
    ]
    assert entry.bad_nodes == ("node-b",) and entry.verdict is Verdict.FAIL


def test_groups_are_known_by_the_last_night_in_which_they_ran(tmp_path):
    with History(tmp_path / "h", create=True) as opened:
        for number, group in enumerate((PUT_GROUP, ADD_GROUP, PUT_GROUP)):
            row = planted.verdict_row(group, "pass")
            history.adding.insert(opened, planted.run_row(number, "n"), {"verdict": [row]}, tmp_path)
        assert history.last_ran(opened, "gate") == {PUT_GROUP: 2.0, ADD_GROUP: 1.0}
        assert history.last_ran(opened, "other") == {}


@pytest.mark.parametrize("name", ["", "a b", "x" * 81, "../up", "n\x1b"])
def test_names_of_nodes_legs_and_nights_are_checked(name):
    with pytest.raises(UsageError, match="expected up to 80"):
        Origin(name)


@pytest.mark.parametrize(
    "words",
    [["nights"], ["flaky"], ["nodes"], ["metrics"], ["changes", night_of(BREAKS - 5)], ["export", "--format", "csv"]],
    ids=lambda words: words[0],
)
def test_every_query_runs(file, words, capsys):
    assert command(["history", *words, "--file", str(file)]) in (0, 1)
    assert capsys.readouterr().out


def test_a_history_that_another_program_writes_is_refused_in_one_line(tmp_path, monkeypatch):
    path = planted.plant(tmp_path / "history.sqlite", nights=2)
    monkeypatch.setattr("history.database.WAIT", 0.1)
    with History(path) as opened:
        other = sqlite3.connect(path)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UsageError, match=r"history\.sqlite: database is locked: wait until"):
            opened.delete_run("x")
        other.rollback()
        other.close()
