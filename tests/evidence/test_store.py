"""Writing evidence: whole lines, which survive any end of the writer."""

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from harness.errors import HarnessError, UsageError
from harness.evidence import Group, Store, Verdict, read, worker_path
from harness.evidence.lines import MAX_LINE
from tests.evidence import samples


def test_records_come_back_as_they_were_written(tmp_path):
    records = samples.red()
    evidence = read(samples.write(tmp_path / "new" / "evidence.jsonl", records))
    assert evidence.runs == [records[0]]
    assert tuple(evidence.plan.values()) == records[1].groups
    assert tuple(evidence.statements.values()) == records[1].requirements
    assert list(evidence.kernels.values()) == [records[2]]
    assert evidence.cases == [records[3], records[4], records[6]]
    assert [group for groups in evidence.groups.values() for group in groups] == [records[5], records[7]]
    assert evidence.ends == [records[8]]
    assert evidence.problems == []


def test_every_line_names_schema_and_record(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["schema"] for line in lines} == {2}
    assert {line["run"] for line in lines} == {samples.RUN}
    assert [line["sequence"] for line in lines] == list(range(len(lines)))
    assert {line["record"] for line in lines} == {"run", "plan", "kernel", "case", "group", "end"}


def test_a_record_that_does_not_fit_is_refused_and_leaves_no_line(tmp_path):
    with Store(tmp_path / "evidence.jsonl", samples.RUN) as store:
        with pytest.raises(HarnessError, match="ranks"):
            store.append(samples.run(ranks=()))
        with pytest.raises(HarnessError, match="message"):
            store.append(samples.case(verdict=Verdict.FAIL, message=""))
        with pytest.raises(HarnessError, match="not plain JSON"):
            store.append(samples.case(telemetry={"watts": float("nan")}))
        with pytest.raises(HarnessError, match="at most"):
            store.append(samples.case(message="x" * MAX_LINE))
        with pytest.raises(HarnessError, match="of run a1b2c3, not of other"):
            store.append(samples.run(id="other"))
    assert (tmp_path / "evidence.jsonl").read_bytes() == b""


@pytest.mark.parametrize("fields", [{"n": 10**400}, {"n": functools.reduce(lambda inner, _: [inner], range(70), 0)}])
def test_a_line_that_no_reader_takes_is_refused(tmp_path, fields):
    path = tmp_path / "evidence.jsonl"
    with Store(path, samples.RUN) as store:
        store.append(samples.run())
        with pytest.raises(HarnessError, match=r"cannot be read again: it (holds a number of 401 digits|is nested)"):
            store.append(samples.case(1, case={"type": "Copy", "fields": fields}))
        store.append(samples.end())
    assert not [problem for problem in read(path).problems if "line" in problem]
    assert len(path.read_bytes().splitlines()) == 2


def test_a_file_begins_with_its_run(tmp_path):
    with Store(tmp_path / "evidence.jsonl") as store, pytest.raises(HarnessError, match="begins with a run record"):
        store.append(samples.plan())


def test_runs_do_not_share_a_file(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green())
    content = path.read_bytes()
    with pytest.raises(UsageError, match=r"evidence.jsonl exists already"):
        Store(path)
    assert path.read_bytes() == content
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="folder exists already"):
        Store(tmp_path / "folder")


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    """A record that could not be written leaves no part, and the next record continues the chain."""
    path, write = tmp_path / "evidence.jsonl", os.write
    with Store(path) as store:
        store.append(samples.run())

        def full(descriptor, data):
            if len(data) < 40:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data[: len(data) // 2])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space left"):
                store.append(samples.plan())
        store.append(samples.plan())
    evidence = read(path)
    assert evidence.problems == []
    assert len(evidence.plan) == 2


def test_infinities_in_a_difference_become_text(tmp_path):
    from harness.evidence import Difference

    bad = samples.case(verdict=Verdict.FAIL, differs=Difference("heap", 1, 2, float("nan"), float("-inf")))
    [back] = read(samples.write(tmp_path / "evidence.jsonl", [*samples.green()[:3], bad])).cases
    assert (back.differs.got, back.differs.wanted) == ("nan", "-inf")


def test_threads_do_not_mix_lines(tmp_path):
    path = tmp_path / "evidence.jsonl"
    with Store(path) as store:
        for record in samples.green()[:3]:
            store.append(record)
        threads = [
            threading.Thread(target=lambda k=k: [store.append(samples.case(100 * k + i)) for i in range(50)])
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    evidence = read(path)
    assert evidence.problems == []
    assert sorted(case.case["fields"]["count"] for case in evidence.cases) == sorted(
        100 * k + i for k in range(4) for i in range(50)
    )


def test_lines_of_a_killed_writer_are_kept(tmp_path):
    path = tmp_path / "evidence.jsonl"
    code = f"""
        import sys
        from tests.evidence import samples
        from harness.evidence import Store
        store = Store({str(path)!r}, samples.RUN)
        for number in range(1000000):
            store.append(samples.case(number))
            if number == 20:
                print("ready", flush=True)
    """
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, cwd=os.getcwd())
    try:
        assert writer.stdout.readline() == b"ready\n"
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    evidence = read(path)
    assert [case.case["fields"]["count"] for case in evidence.cases] == list(range(len(evidence.cases)))
    assert len(evidence.cases) >= 21


def test_a_torn_line_is_reported(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green()[:4])
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    assert read(path).problems == ["evidence.jsonl line 4 was cut off: its writer was killed"]
    path.write_bytes(content[:-1])
    assert read(path).problems == ["evidence.jsonl line 4 has no line end: it was cut off"]


def test_workers_are_absorbed_into_the_chain(tmp_path):
    path = tmp_path / "evidence.jsonl"
    with Store(path) as store:
        store.append(samples.run())
        for worker, number in (("gw0", 1), ("gw1", 2)):
            samples.write(worker_path(path, worker), [samples.plan(), samples.kernel(), samples.case(number)])
        torn = worker_path(path, "gw1")
        torn.write_bytes(torn.read_bytes() + b'{"schema": 2, "rec')
        assert len(read(path).cases) == 2, "a controller that was killed: workers' files are read where they lie"
        assert store.absorb_workers() == 7
        store.append(Group(samples.PUT_GROUP, samples.PUT, Verdict.PASS, 2))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["evidence.jsonl"]
    evidence = read(path)
    assert [case.case["fields"]["count"] for case in evidence.cases] == [1, 2]
    assert evidence.problems == ["evidence.jsonl line 8 is not JSON"]
    assert len(evidence.kernels) == 1
    writers = [json.loads(line).get("writer") for line in path.read_text().splitlines() if line.endswith("}")]
    assert writers == [None, *["gw0"] * 3, *["gw1"] * 3, None]


@pytest.mark.parametrize("change", ["edited", "removed", "another worker's", "another run's", "too long"])
def test_what_does_not_fit_a_workers_chain_stays_visible(tmp_path, change):
    path = tmp_path / "evidence.jsonl"
    worker = samples.write(worker_path(path, "gw0"), [samples.plan(), samples.kernel(), samples.case(1)])
    lines = worker.read_bytes().splitlines(keepends=True)
    if change == "edited":
        lines[2] = lines[2].replace(b'"verdict":"pass"', b'"verdict":"fail"')
    elif change == "removed":
        del lines[1]
    elif change == "too long":
        lines[2] = b" " * (MAX_LINE + 1) + lines[2]
    else:
        other = tmp_path / "other" / ("evidence-gw1.jsonl" if change == "another worker's" else "evidence-gw0.jsonl")
        records = [samples.run(id="other")] if change == "another run's" else []
        lines[2:] = samples.write(other, [*records, samples.kernel()]).read_bytes().splitlines(keepends=True)
    worker.write_bytes(b"".join(lines))
    with Store(path) as store:
        store.append(samples.run())
        store.absorb_workers()
        store.append(samples.end())
    problems = read(path).problems
    assert problems
    assert not any("end" in problem for problem in problems), "the chain goes on behind what does not fit"


def test_a_closed_store_refuses(tmp_path):
    store = Store(tmp_path / "evidence.jsonl")
    store.close()
    store.close()
    with pytest.raises(HarnessError, match="closed"):
        store.append(samples.run())
