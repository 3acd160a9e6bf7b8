"""Benchmarks in a report: what is read, what is refused, and where the curves are."""

from __future__ import annotations

import copy
import json

import pytest

from command_line.bench.plan import CellKey, Request
from command_line.bench.results import Results
from command_line.bench.writing import to_json
from command_line.bench.writing import write as write_results
from command_line.main import run as command
from harness.errors import UsageError
from harness.evidence import read
from reports import read_benchmarks, render_html
from reports.plots import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, bandwidth, plots_of, time
from tests.evidence import samples

IMPLEMENTATION = {"name": "iris_under_test", "version": "0.1.0", "commit": "0" * 40, "sha256": "5" * 64}
RUN = samples.run(implementation=IMPLEMENTATION)


def results(op="all_gather", ranks=4, sizes=(4096, 16384, 65536), run=RUN):
    """Return results as bench makes them on the machine of ``run``, whose times grow with the size."""
    request = Request(
        op=op, device=run.device, arch=run.arch, ranks=ranks, sizes=sizes, cus=(None,), backends=("nccl", "gluon"),
        implementation=run.implementation["name"],
    )  # fmt: skip
    environment = {**run.environment, "implementation": dict(run.implementation)}
    made = Results.planned(request, environment, "2026-11-21T03:00:00Z")
    made.rig = {"theirs": "torch.distributed (gloo)", "gpus": []}
    for size in made.sizes:
        for number, cell in enumerate(size.cells, 1):
            cell.rounds = [[number * size.layout.size * round_ * 1e-9] * ranks for round_ in (1, 2, 3, 4, 5)]
    return made


def written(folder, *all_results):
    for each in all_results:
        place = folder / f"{each.request.op}-{each.request.dtype}-{each.request.ranks}"
        place.mkdir(parents=True)
        write_results(each, place)
    return folder


@pytest.fixture
def evidence_file(tmp_path):
    (tmp_path / "run").mkdir()
    records = [RUN if each.record == "run" else each for each in samples.green()]
    return samples.write(tmp_path / "run" / "evidence.jsonl", records)


@pytest.fixture
def evidence(evidence_file):
    return read(evidence_file)


def test_results_that_bench_wrote(tmp_path, evidence):
    folder = written(tmp_path / "bench", results(), results(ranks=2), results("all_reduce"))
    names = ["all_gather, fp16, 2 ranks", "all_gather, fp16, 4 ranks", "all_reduce, fp16, 4 ranks"]
    assert [each.name for each in read_benchmarks([folder], evidence)] == names
    [one] = read_benchmarks([folder / "all_gather-fp16-4"], evidence)
    assert one == read_benchmarks([folder / "all_gather-fp16-4" / "bench.json"], evidence)[0]
    assert [series.label for series in one.series] == ["torch.distributed (gloo)", "gluon"]
    first = one.series[1].points[0]
    assert first.time == pytest.approx((2 * 4096 * 3e-9, 2 * 4096 * 1.4e-9, 2 * 4096 * 4.6e-9))
    assert first.bandwidth[0] == pytest.approx(4096 * 0.75 / (2 * 4096 * 3e-9))
    assert first.bandwidth[1] < first.bandwidth[0] < first.bandwidth[2]


def test_the_best_configuration_of_a_backend_is_shown(tmp_path, evidence):
    made = results()
    slow, fast = (copy.deepcopy(made.sizes[0].cells[1]) for _ in range(2))
    slow.key, fast.key = CellKey("gluon", 4), CellKey("gluon", 8)
    fast.rounds = [[each / 2 for each in ranks] for ranks in fast.rounds]
    made.sizes[0].cells += [slow, fast]
    [one] = read_benchmarks([written(tmp_path / "bench", made)], evidence)
    assert [point.cus for point in one.series[1].points] == [8, None, None]


def test_cells_that_did_not_end_well_are_named_and_have_no_point(tmp_path, evidence):
    made = results()
    made.sizes[1].cells[1].fault, made.sizes[1].cells[1].detail = "wrong", "element 3 of rank 1"
    [one] = read_benchmarks([written(tmp_path / "bench", made)], evidence)
    assert one.wrong == ("16 KiB, gluon: wrong: element 3 of rank 1",)
    assert [point.size for point in one.series[1].points] == [4096, 65536]
    page = render_html(evidence, benchmarks=[one])
    assert "1 timing without a right output" in page and "16 KiB, gluon: wrong: element 3 of rank 1" in page


def test_the_curves_lie_in_the_axes(tmp_path, evidence):
    [one] = read_benchmarks([written(tmp_path / "bench", results())], evidence)
    rate, seconds = plots_of(one)
    assert (rate.title, seconds.title) == ("Bus bandwidth", "Time of a call")
    for plot in (rate, seconds):
        for line in plot.lines:
            places = [tuple(map(float, each.split(","))) for each in (line.path + " " + line.band).split()]
            assert len(places) == 3 + 6
            assert all(LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM for x, y in places)
        assert [tick.label for tick in plot.x_ticks] == ["4 KiB", "16 KiB", "64 KiB"]
        assert [tick.at for tick in plot.y_ticks] == sorted((tick.at for tick in plot.y_ticks), reverse=True)
    # Twice the time is half the bandwidth: the slower backend is above in the one and below in the other.
    assert seconds.lines[1].marks[0][1] < seconds.lines[0].marks[0][1]
    assert rate.lines[1].marks[0][1] > rate.lines[0].marks[0][1]
    assert seconds.lines[0].marks[0][2] == "torch.distributed (gloo), 4 KiB: 12.3 \N{MICRO SIGN}s"


def test_one_rank_has_no_bus_and_one_size_is_in_the_middle(tmp_path, evidence):
    [one] = read_benchmarks([written(tmp_path / "bench", results(ranks=1, sizes=(4096,)))], evidence)
    [plot] = plots_of(one)
    assert plot.title == "Time of a call"
    assert plot.x_ticks[0].at == (LEFT + WIDTH - RIGHT) / 2


@pytest.mark.parametrize(
    ("value", "words", "expected"),
    [(4.21e10, bandwidth, "42.1 GB/s"), (999.9e6, bandwidth, "1 GB/s"), (3, bandwidth, "3 B/s"),
     (3.51e-5, time, "35.1 \N{MICRO SIGN}s"), (2.0, time, "2 s"), (5e-10, time, "0.5 ns")],
)  # fmt: skip
def test_values_in_words(value, words, expected):
    assert words(value) == expected


def changed(plain, path, value):
    *inner, last = path
    for name in inner:
        plain = plain[name]
    if value is None:
        del plain[last]
    else:
        plain[last] = value


CELL = ("sizes", 0, "cells", 0)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("schema",), 2, "schema is 2, and this version reads 1"),
        (("schema",), None, "schema is None"),
        (("sizes",), {}, "sizes is missing, or is not a list"),
        (("request",), [], "request is missing, or is not an object"),
        (("request", "ranks"), 0, "request.ranks is 0, expected a positive whole number"),
        (("request", "ranks"), True, "request.ranks is True, expected a positive whole number"),
        ((*CELL, "median_us"), -1, "sizes.0.cells.0.median_us is -1, expected a positive number"),
        ((*CELL, "median_us"), "fast", "sizes.0.cells.0.median_us is 'fast', expected a positive number"),
        ((*CELL, "p10_us"), 1e6, "sizes.0.cells.0: the median is not between p10_us and p90_us"),
        ((*CELL, "backend"), 7, "sizes.0.cells.0.backend is 7, expected text"),
        ((*CELL, "cus"), "many", "sizes.0.cells.0.cus is 'many', expected a positive whole number"),
        (("sizes", 0, "bytes"), 1.5, "sizes.0.bytes is 1.5, expected a positive whole number"),
        (("sizes", 0, "cells", 0), "x", "sizes.0.cells.0.backend is None, expected text"),
    ],
)
def test_a_file_of_another_form(tmp_path, evidence, path, value, expected):
    plain = json.loads(json.dumps(to_json(results())))
    changed(plain, path, value)
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(plain))
    with pytest.raises(UsageError) as error:
        read_benchmarks([file], evidence)
    assert str(error.value).startswith(f"{file} is not a result of iris-harness bench: ")
    assert expected in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("request", "implementation"), "iris", "library of the results: iris, of the evidence: iris_under_test"),
        (("request", "device"), "rocm", "device of the results: rocm, of the evidence: emulated"),
        (("request", "arch"), "gfx950", "architecture of the results: gfx950, of the evidence: gfx942"),
        (("environment", "os"), "Plan 9", "operating system of the results: Plan 9, of the evidence: Linux"),
        (("environment", "cpus"), 64, "number of processors of the results: 64, of the evidence: 2"),
        (("environment", "packages", "triton"), "3.6.0", "triton of the results: 3.6.0, of the evidence: 3.9.0"),
        (("environment", "implementation", "sha256"), "6" * 64, "sources of the library of the results: 666"),
    ],
)
def test_results_of_another_library_or_machine(tmp_path, evidence, path, value, expected):
    plain = json.loads(json.dumps(to_json(results())))
    changed(plain, path, value)
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(plain))
    with pytest.raises(UsageError) as error:
        read_benchmarks([file], evidence)
    assert str(error.value).startswith(f"{file} belongs to another run than the evidence: {expected}")


def test_results_on_another_gpu(tmp_path, evidence):
    evidence.hardware.append(samples.hardware())
    made = results()
    made.rig = {"gpus": [{"uuid": samples.GPUS[0]}]}
    assert read_benchmarks([written(tmp_path / "same", made)], evidence)
    made.rig = {"gpus": [{"uuid": "GPU-of-another-machine"}]}
    with pytest.raises(UsageError, match="used the GPU GPU-of-another-machine, of which the evidence has no record"):
        read_benchmarks([written(tmp_path / "other", made)], evidence)


def test_sources_without_a_hash_are_compared_by_their_commit(tmp_path, evidence):
    plain = json.loads(json.dumps(to_json(results())))
    del plain["environment"]["implementation"]["sha256"]
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(plain))
    assert read_benchmarks([file], evidence)
    plain["environment"]["implementation"]["commit"] = "1" * 40
    file.write_text(json.dumps(plain))
    with pytest.raises(UsageError, match="sources of the library of the results: 111"):
        read_benchmarks([file], evidence)


def test_two_results_of_one_benchmark(tmp_path, evidence):
    first, second = (written(tmp_path / name, results()) for name in ("first", "second"))
    with pytest.raises(UsageError, match="both have results of all_gather, fp16, 4 ranks"):
        read_benchmarks([first, second], evidence)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"schema": NaN}', b'{"schema": 1, "schema": 1}', b"\xff"])
def test_a_bad_file_is_refused_in_one_line_and_nothing_is_overwritten(capsys, tmp_path, evidence_file, content):
    (tmp_path / "bench.json").write_bytes(content)
    before = {name: f"earlier {name}" for name in ("report.html", "junit.xml")}
    for name, text in before.items():
        (evidence_file.parent / name).write_text(text)
    for path in (tmp_path / "bench.json", tmp_path / "absent", evidence_file.parent):
        assert command(["report", str(evidence_file), "--bench", str(path)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"iris-harness: {path}") and err.count("\n") == 1
        assert {name: (evidence_file.parent / name).read_text() for name in before} == before


def test_the_report_shows_them_and_the_status_is_that_of_the_run(tmp_path, evidence_file):
    made = results()
    made.sizes[0].cells[0].fault = "failed"
    folder = written(tmp_path / "bench", made)
    assert command(["report", str(evidence_file)]) == command(["report", str(evidence_file), "--bench", str(folder)])
    page = (evidence_file.parent / "report.html").read_text()
    assert 'id="bench"' in page and "all_gather, fp16, 4 ranks" in page and "not a bandwidth of any GPU" in page
    assert 'id="bench"' not in render_html(read(evidence_file))


def test_hostile_text_of_results_is_escaped(tmp_path, evidence):
    made = results()
    made.sizes[0].cells[0].fault, made.sizes[0].cells[0].detail = "wrong", "<script>alert(1)</script>\x1b[31m"
    plain = json.loads(json.dumps(to_json(made)))
    plain["backends"]["gluon"] = '"><img src=x>'
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(plain))
    page = render_html(evidence, benchmarks=read_benchmarks([file], evidence))
    assert "<img" not in page and "<script>alert" not in page and "\x1b" not in page
