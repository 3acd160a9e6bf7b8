"""Writing: whole lines, kept whatever happens to the writer."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from harness.errors import HarnessError
from harness.evidence import Group, Store, Verdict, read, worker_path
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
    assert {line["schema"] for line in lines} == {1}
    assert {line["record"] for line in lines} == {"run", "plan", "kernel", "case", "group", "end"}


def test_a_record_that_does_not_fit_is_refused_and_leaves_no_line(tmp_path):
    with Store(tmp_path / "evidence.jsonl") as store:
        with pytest.raises(HarnessError, match="ranks"):
            store.append(samples.run(ranks=()))
        with pytest.raises(HarnessError, match="message"):
            store.append(samples.case(verdict=Verdict.FAIL, message=""))
        with pytest.raises(HarnessError, match="not plain JSON"):
            store.append(samples.case(telemetry={"watts": float("nan")}))
    assert (tmp_path / "evidence.jsonl").read_bytes() == b""


def test_infinities_in_a_difference_become_text(tmp_path):
    from harness.evidence import Difference

    bad = samples.case(verdict=Verdict.FAIL, differs=Difference("heap", 1, 2, float("nan"), float("-inf")))
    [back] = read(samples.write(tmp_path / "evidence.jsonl", [bad])).cases
    assert (back.differs.got, back.differs.wanted) == ("nan", "-inf")


def test_threads_do_not_mix_lines(tmp_path):
    path = tmp_path / "evidence.jsonl"
    with Store(path) as store:
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
        store = Store({str(path)!r})
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


def test_a_torn_line_is_reported_and_does_not_swallow_the_next_record(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green()[:4])
    path.write_bytes(path.read_bytes()[:-20])
    assert "line 4 was cut off" in read(path).problems[0]
    with Store(path) as store:
        store.append(samples.end())
    evidence = read(path)
    assert len(evidence.ends) == 1
    assert evidence.problems == ["evidence.jsonl line 4 is not JSON"]


def test_workers_are_absorbed_in_whole_lines(tmp_path):
    path = tmp_path / "evidence.jsonl"
    with Store(path) as store:
        store.append(samples.run())
        store.append(samples.plan())
        for worker, number in (("gw0", 1), ("gw1", 2)):
            samples.write(worker_path(path, worker), [samples.kernel(), samples.case(number)])
        torn = worker_path(path, "gw1")
        torn.write_bytes(torn.read_bytes() + b'{"schema": 1, "rec')
        assert len(read(path).cases) == 2, "a controller that was killed: workers' files are read where they lie"
        assert store.absorb_workers() == 5
        store.append(Group(samples.PUT_GROUP, samples.PUT, Verdict.PASS, 2))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["evidence.jsonl"]
    evidence = read(path)
    assert [case.case["fields"]["count"] for case in evidence.cases] == [1, 2]
    assert evidence.problems == ["evidence.jsonl line 7 is not JSON"]
    assert len(evidence.kernels) == 1


def test_a_closed_store_refuses(tmp_path):
    store = Store(tmp_path / "evidence.jsonl")
    store.close()
    store.close()
    with pytest.raises(HarnessError, match="closed"):
        store.append(samples.run())
