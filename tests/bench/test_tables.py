"""The table that ``--tune`` writes, and that the library reads it as it was meant."""

import json

import pytest

from command_line.bench import candidates, tables
from harness.errors import UsageError
from iris_under_test.ccl import Config, tuned_config, tuning
from tests.bench.planted import Ranks, results
from tests.bench.test_run import measured

KIB = 1 << 10


@pytest.fixture(autouse=True)
def three_candidates(monkeypatch):
    """Whatever is tried of late."""
    monkeypatch.setattr(candidates, "SHAPES", ((1 << 60, ((1024, 2, 64), (2048, 4, 64), (4096, 8, 64))),))


def tuned(seconds, **changes):
    results_of_run = measured(Ranks(seconds=seconds), **{"tune": True, "sizes": (8 * KIB,), **changes})
    return results_of_run, tables.entries_of(results_of_run, results_of_run.sizes[0])


def fast(rows):
    """Plant the fastest candidate of each language by its rows per tile."""
    return lambda cell: 1e-5 if ("block_size_m", rows) in cell else 2e-5


def test_the_fastest_of_each_language_is_an_entry():
    actual, entries = tuned(fast(2), backends=("nccl", "gluon", "triton"))
    assert [entry["use_gluon"] for entry in entries] == [True, False]
    for entry in entries:
        assert {name: entry[name] for name in tables.KEYS if name != "use_gluon"} == {
            "arch": "sm_90", "op": "all_gather", "element_size": 2, "world_size": 8, "bytes": 8 * KIB,
        }  # fmt: skip
        assert entry["config"] == {"comm_sms": 64, "block_size_m": 2, "block_size_n": 256, "num_warps": 2}
        assert entry["measured"].startswith("8 x NVIDIA H200, fp16, 2")
        assert entry["measured"].endswith("10.7 us, torch.distributed (NCCL 2.28) 21.4 us")
    assert actual.good


def test_an_entry_has_the_bytes_that_were_moved():
    _, [entry] = tuned(fast(2), backends=("triton",), sizes=(8 * KIB + 100,))
    assert entry["bytes"] == 8 * KIB


def test_what_was_not_right_is_no_entry():
    results_of_run = results(tune=True, sizes=(8 * KIB,))
    assert tables.entries_of(results_of_run, results_of_run.sizes[0]) == []
    assert tables.entries_of(measured(Ranks()), measured(Ranks()).sizes[0]) == [], "nor what was not tuned"


def test_an_entry_replaces_the_one_for_the_same_purpose(tmp_path):
    path = tmp_path / "table.json"
    _, first = tuned(fast(2))
    _, second = tuned(fast(4))
    _, other = tuned(fast(8), op="all_reduce")
    tables.merge(path, first)
    tables.merge(path, other)
    tables.merge(path, second)
    plain = json.loads(path.read_text())
    assert plain["schema"] == tables.SCHEMA
    assert first != second
    assert plain["entries"] == [*second, *other]
    assert [part.name for part in tmp_path.iterdir()] == ["table.json"]
    assert len(path.read_text().splitlines()) == 5 + 2, "a line per entry, for people and for diffs"


def test_the_library_reads_it(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    entries = []
    for op in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast"):
        for size in (8 * KIB, 1 << 20, 64 << 20):
            entries += tuned(lambda cell: 1e-5, op=op, sizes=(size,), backends=("gluon", "triton"))[1]
    tables.merge(path, entries)
    monkeypatch.setenv(tuning.TUNING_VARIABLE, str(path))
    assert len(entries) == 30
    for entry in entries:
        key = {name: entry[name] for name in ("element_size", "world_size", "arch", "use_gluon")}
        config = tuned_config(entry["op"], nbytes=entry["bytes"], **key)
        assert config == Config(use_gluon=entry["use_gluon"], **entry["config"])


@pytest.mark.parametrize(
    "text",
    ["", "7", "{}", '{"schema": 2, "entries": []}', '{"schema": 1, "entries": [{}]}', '{"schema": 1, "entries": [7]}'],
)
def test_a_file_that_is_something_else_is_left_alone(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"--tune .*mine\.json: the file exists and is not a table"):
        tables.check(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("name", "value"), [("bytes", "8192"), ("world_size", True), ("arch", None), ("op", ["all_gather"])]
)
def test_an_entry_that_cannot_stand_beside_others_is_told_before_anything_is_measured(tmp_path, name, value):
    path = tmp_path / "mine.json"
    _, (entry,) = tuned(fast(2))
    path.write_text(json.dumps({"schema": 1, "entries": [entry, {**entry, name: value}]}))
    with pytest.raises(UsageError, match=rf"'{name}' of entry 1 is missing or wrong\): name another file"):
        tables.check(path)


def test_a_place_that_cannot_be_written():
    with pytest.raises(UsageError, match=r"cannot write there .*: name another file"):
        tables.check(tables.Path("/proc/nowhere/table.json"))


def test_the_tables_of_both_sides_are_the_same_kind():
    assert tables.SCHEMA == tuning._SCHEMA
    assert {*tables.KEYS, "config", "measured"} == set(tuning._KEYS)
