"""The loop, its statistics and its files, on ranks with planted answers."""

import csv
import io
import itertools
import json
import math
from collections import Counter

import pytest
from rich.console import Console

from command_line.bench import candidates, plots, writing
from command_line.bench.display import ProgressDisplay, print_meaning, print_results
from command_line.bench.ops import MOST_CALLS
from command_line.bench.plan import CellKey
from command_line.bench.results import percentile
from command_line.bench.run import Measurement, Stopped
from tests.bench.planted import RIG, Ranks, Silent, results

NCCL, QUEUED, GLUON4, GLUON8 = ("nccl", None), ("nccl queued", None), ("gluon", 4), ("gluon", 8)


def measured(answering, stop=lambda: False, watcher=None, **changes):
    actual = results(**changes)
    actual.rig = RIG
    measurement = Measurement(actual, answering, watcher or Silent(), stop)
    for size in actual.sizes:
        measurement.run(size)
    return actual


def shown(actual, width=100):
    text = io.StringIO()
    print_results(actual, Console(width=width, file=text))
    print_meaning(actual, Console(width=width, file=text))
    return text.getvalue()


def test_every_cell_is_timed_in_every_round_with_inputs_of_its_own():
    ranks, watcher = Ranks(), Silent()
    actual = measured(ranks, watcher=watcher)
    assert actual.good
    for size in actual.sizes:
        assert size.captured
        for cell in size.cells:
            assert len(cell.times) == 5
    generations = [generation for _, generation in ranks.timed]
    assert len(set(generations)) == len(generations)
    assert watcher.steps == watcher.promised


def test_rounds_are_interleaved_in_an_order_that_the_seed_repeats():
    def orders(seed):
        ranks = Ranks()
        measured(ranks, seed=seed, sizes=(2 << 20,), repeat=6, cus=(4, 8, 16, 32))
        timed = [cell for cell, _ in ranks.timed][1:]  # behind the pilot
        return [timed[start : start + 6] for start in range(0, 36, 6)]

    first = orders(1)
    assert all(len(set(order)) == 6 for order in first)
    assert len({tuple(order) for order in first}) > 1
    assert first == orders(1)
    assert first != orders(2)


def test_the_slowest_rank_counts():
    actual = measured(Ranks(seconds=lambda cell: {NCCL: 2e-5, QUEUED: 3e-5}.get(cell, 1e-5)))
    size = actual.sizes[0]
    assert size.cell(CellKey(*NCCL)).time() == pytest.approx(2e-5 * 1.07)
    assert size.best("gluon").time() == pytest.approx(1e-5 * 1.07)
    assert size.ratio(size.best("gluon")) == pytest.approx(2)


def test_what_is_compared_with_is_the_faster_form_of_theirs():
    actual = measured(Ranks(seconds=lambda cell: {NCCL: 3e-5, QUEUED: 2e-5}.get(cell, 1e-5)))
    size = actual.sizes[0]
    assert size.ratio(size.best("gluon")) == pytest.approx(2)
    assert size.ratio(size.best("nccl")) == pytest.approx(2 / 3)


def test_bandwidths_are_those_of_nccl_tests():
    actual = measured(Ranks(seconds=lambda cell: 1e-3 / 1.07))
    size = actual.sizes[0]
    assert actual.algorithm_bandwidth(size, 1e-3) == pytest.approx(2.097152)
    assert actual.bus_bandwidth(size, 1e-3) == pytest.approx(2.097152 * 7 / 8)


def test_a_replay_takes_a_millisecond_by_the_first_cell():
    ranks = Ranks(seconds=lambda cell: 1e-4 if cell == NCCL else 1e-5)
    actual = measured(ranks, sizes=(2 << 20,))
    assert actual.sizes[0].calls == math.ceil(1e-3 / (1e-4 * 1.07))
    prepared = [payload for name, payload in ranks.calls if name == "prepare"]
    assert [payload["captured"] for payload in prepared] == [False, True, True, True, True], "only the first one twice"
    ranks = Ranks(seconds=lambda cell: 1e-9)
    assert measured(ranks, sizes=(2 << 20,)).sizes[0].calls == MOST_CALLS
    assert set(ranks.prepared.values()) == {MOST_CALLS}
    assert measured(Ranks(seconds=lambda cell: 0.5), sizes=(2 << 20,)).sizes[0].calls == 1


def test_a_timing_has_no_more_calls_than_can_be_checked():
    actual = measured(Ranks(seconds=lambda cell: 1e-9), sizes=(2 << 20,), op="all_reduce")
    assert actual.sizes[0].calls == actual.request.most_calls() == 8


def test_a_pilot_that_fails_is_followed_by_another():
    for faults in ({"crashes": [NCCL]}, {"errs": [NCCL]}):
        actual = measured(Ranks(seconds=lambda cell: 1e-4, **faults), sizes=(2 << 20,))
        [size] = actual.sizes
        assert size.calls == 10
        assert [cell.status for cell in size.cells][1:] == ["ok"] * 3
    gone = measured(Ranks(errs=[NCCL, QUEUED, GLUON4, GLUON8]), sizes=(2 << 20,))
    assert {cell.status for cell in gone.sizes[0].cells} == {"wrong"}


def test_hopeless_candidates_are_not_timed_again(monkeypatch):
    monkeypatch.setattr(candidates, "SHAPES", ((1 << 60, ((2048, 4, 64), (4096, 4, 64), (4096, 8, 64))),))
    slow = ("num_warps", 8)

    def seconds(cell):
        return {NCCL: 5e-5, ("gluon", 64): 3e-5}.get(cell, 3e-5 if slow in cell else 1e-5)

    actual = measured(Ranks(seconds=seconds), tune=True, sizes=(8 << 10,))
    rounds = {cell.key: len(cell.rounds) for cell in actual.sizes[0].cells}
    assert {count for key, count in rounds.items() if slow in key.fields} == {1}
    assert {count for key, count in rounds.items() if slow not in key.fields} == {5}
    assert actual.good
    assert slow not in actual.sizes[0].best("gluon").key.fields
    untuned = measured(Ranks(seconds=seconds), cus=(4, 64))
    assert {len(cell.rounds) for size in untuned.sizes for cell in size.cells} == {5}


def test_no_graphs_where_they_are_not_wanted():
    for changes in ({"eager": True}, {"device": "emulated", "arch": "gfx942"}):
        ranks = Ranks()
        actual = measured(ranks, **changes)
        assert not any(size.captured for size in actual.sizes)
        assert not any(payload["captured"] for name, payload in ranks.calls if name == "prepare")


def test_what_one_backend_cannot_capture_no_backend_captures():
    ranks = Ranks(refuses=[GLUON8])
    actual = measured(ranks, sizes=(2 << 20,))
    [size] = actual.sizes
    assert actual.good
    assert not size.captured
    assert "gluon with 8 CUs" in size.note
    assert "operation not permitted" in size.note
    last = {payload["cell"]: payload["captured"] for name, payload in ranks.calls if name == "prepare"}
    assert set(last.values()) == {False}
    assert "operation not permitted" in shown(actual)


def test_a_wrong_cell_is_red_named_and_without_a_time():
    actual = measured(Ranks(errs=[GLUON4]), sizes=(2 << 20,))
    [size] = actual.sizes
    cell = size.cell(CellKey(*GLUON4))
    assert (cell.status, cell.times) == ("wrong", [])
    assert cell.detail == "rank 1: 1 of 10 elements are wrong"
    assert not actual.good
    assert "wrong: gluon with 4 CUs at 2 MiB: rank 1: 1 of 10" in shown(actual)
    assert size.best("gluon").key.cus == 8


def test_a_cell_that_goes_wrong_late_loses_the_times_it_had():
    class Tiring(Ranks):
        def measure(self, cell, generation):
            self.errs = [GLUON4] if generation > 9 else []
            return super().measure(cell, generation)

    actual = measured(Tiring(), sizes=(2 << 20,))
    cell = actual.sizes[0].cell(CellKey(*GLUON4))
    assert cell.rounds
    assert (cell.status, cell.times) == ("wrong", [])
    plain = writing.to_json(actual)["sizes"][0]["cells"][2]
    assert plain["times_us"] == []
    assert "median_us" not in plain


def test_a_crash_costs_its_cell_and_the_others_are_made_ready_again():
    ranks = Ranks(crashes=[GLUON4, ("gluon", 16)])
    actual = measured(ranks, cus=(4, 8, 16))
    for size in actual.sizes:
        assert [cell.status for cell in size.cells] == ["ok", "ok", "failed", "ok", "failed"]
        assert [len(cell.times) for cell in size.cells] == [5, 5, 0, 5, 0]
    assert "SIGSEGV" in actual.sizes[0].cells[2].detail
    assert not actual.good
    assert Counter(cell for cell, _ in ranks.timed) == {NCCL: 12, QUEUED: 10, GLUON8: 10}


def test_ranks_that_cannot_come_back_fail_the_size_and_not_for_ever():
    class Gone(Ranks):
        def open_size(self, size, **shapes):
            if self.crashes and any(name == "measure" for name, _ in self.calls):
                from harness.ranks import RankCrash

                raise RankCrash({0: "signal 9 (SIGKILL)"}, {})
            return super().open_size(size, **shapes)

    actual = measured(Gone(crashes=[GLUON4]))
    assert {cell.status for size in actual.sizes for cell in size.cells} == {"failed"}


def test_what_was_not_run_is_not_good():
    assert not results().good


def test_a_stop_keeps_what_was_measured(tmp_path):
    ranks = Ranks()
    with pytest.raises(Stopped):
        measured(ranks, stop=lambda: len(ranks.timed) >= 10)
    assert len(ranks.timed) == 10


def test_percentiles():
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert percentile(values, 0.5) == 3
    assert percentile(values, 0) == 1
    assert percentile(values, 1) == 5
    assert percentile(values, 0.1) == pytest.approx(1.4)
    assert percentile([7.0], 0.9) == 7
    assert percentile([1.0, 2.0], 0.5) == 1.5


def test_files(tmp_path):
    actual = measured(Ranks(seconds=lambda cell: 2e-5 if cell[1] is None else 1e-5, errs=[GLUON4]))
    writing.write(actual, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.csv", "bench.json"]
    plain = json.loads((tmp_path / "bench.json").read_text())
    assert plain["schema"] == 1
    assert plain["request"]["seed"] == 0
    assert plain["environment"]["packages"] == {"torch": "2.11.0"}
    assert plain["backends"]["nccl"] == "torch.distributed (NCCL 2.28)"
    assert "warning" not in plain
    size = plain["sizes"][0]
    assert size["best_cus"] == {"gluon": 8}
    nccl, _, wrong, good = size["cells"]
    assert len(nccl["times_us"]) == 5
    assert len(nccl["times_us"][0]) == 8
    assert good["ratio_to_nccl"] == pytest.approx(2)
    assert good["p10_us"] <= good["median_us"] <= good["p90_us"]
    assert wrong["status"] == "wrong"
    rows = list(csv.DictReader((tmp_path / "bench.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert tuple(rows[0]) == writing.COLUMNS
    assert float(rows[3]["ratio_to_nccl"]) == pytest.approx(2)
    assert (rows[2]["status"], rows[2]["median_us"]) == ("wrong", "")


def by_hand(**changes):
    """Five rounds of 10, 20, ... 50 us of the slowest of two ranks, in no order; those of NCCL three times as long."""
    actual = results(**{"sizes": (2 << 20,), "cus": (4, 8), "eager": True, **changes})
    for size in actual.sizes:
        size.calls = 1
        for cell in size.cells:
            times = 3 if cell.key.backend == "nccl" else 1
            cell.rounds = [[times * 1e-5 * tens, times * 0.5e-5 * tens] for tens in (3, 1, 5, 2, 4)]
    return actual


def test_the_figures_of_a_cell_are_what_they_are_called(tmp_path):
    """2 MiB in 30 us, of which 7/8 travel; the 10th percentile of 10, 20, ... 50 is 14."""
    actual = by_hand()
    figures = {
        "median_us": 30, "p10_us": 14, "p90_us": 46, "algbw_gbs": 69.905, "busbw_gbs": 61.167, "ratio_to_nccl": 3,
    }  # fmt: skip
    writing.write(actual, tmp_path)
    _, cell, _ = json.loads((tmp_path / "bench.json").read_text())["sizes"][0]["cells"]
    _, row, _ = csv.DictReader((tmp_path / "bench.csv").read_text().splitlines())
    for plain in (cell, row):
        assert {name: float(plain[name]) for name in figures} == pytest.approx(figures, rel=1e-4)
    assert [time for ranks in cell["times_us"] for time in ranks] == pytest.approx(
        [30, 15, 10, 5, 50, 25, 20, 10, 40, 20]
    )
    assert (row["rounds"], row["bytes"], row["cus"]) == ("5", str(2 << 20), "4")


def test_what_is_drawn_is_bus_bandwidth_and_its_spread():
    """GB/s of 30 us, between those of 46 and 14; NCCL's of 90 us lies across."""
    actual = by_hand()
    middle, low, high = (2.097152e6 * 7 / 8 / us / 1e3 for us in (30, 46, 14))
    for figure, places in (
        (plots._against_cus(actual, actual.sizes[0]), [4, 8]),
        (plots._against_size(actual), [2 << 20]),
    ):
        [axes] = figure.axes
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert list(lines["gluon"].get_xdata()) == places
        assert lines["gluon"].get_ydata() == pytest.approx([middle] * len(places))
        assert list(lines["nccl"].get_ydata()) == pytest.approx([middle / 3] * len(lines["nccl"].get_ydata()))
        [shade] = [band for band in axes.collections if band.get_facecolor()[0][2] > 0.5]  # gluon's is the blue one
        heights = shade.get_paths()[0].vertices[:, 1]
        assert (min(heights), max(heights)) == pytest.approx((low, high))


def test_the_counts_of_the_sweep_can_be_read():
    """Those of docs/bench.md, on their logarithmic axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    actual = by_hand(cus=(4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128))
    figure = plots._against_cus(actual, actual.sizes[0])
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [label.get_window_extent(renderer) for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) == 11
    assert all(one.x1 + 2 < other.x0 for one, other in itertools.pairwise(boxes))


def test_earlier_results_are_moved_away_together(tmp_path):
    for number in range(2):
        (tmp_path / "bench.json").write_text(f"{number}")
        (tmp_path / "bench.csv").write_text(f"{number}")
        (tmp_path / f"all_gather-{number}.png").write_text(f"{number}")
        writing.set_aside(tmp_path)
    (tmp_path / "mine.png").touch()
    writing.set_aside(tmp_path)
    kept = sorted((tmp_path / "earlier").iterdir())
    assert [[path.name for path in sorted(folder.iterdir())] for folder in kept] == [
        ["all_gather-0.png", "bench.csv", "bench.json"],
        ["all_gather-1.png", "bench.csv", "bench.json"],
    ]
    assert [path.name for path in tmp_path.glob("*.*")] == ["mine.png"]


def test_the_table_says_whether_the_aim_is_met():
    actual = measured(Ranks(seconds=lambda cell: {NCCL: 2e-5, GLUON4: 1e-5}.get(cell, 3e-5)), sizes=(2 << 20,))
    [line] = [line for line in shown(actual, 80).splitlines() if "gluon" in line]
    assert line.split() == ["gluon", "10.7", "10.7–10.7", "196.0", "171.5", "2.00", "4", "yes"]
    actual = measured(Ranks(seconds=lambda cell: {NCCL: 1e-5, GLUON4: 2e-5}.get(cell, 3e-5)), sizes=(2 << 20,))
    [line] = [line for line in shown(actual, 80).splitlines() if "gluon" in line]
    assert line.split()[-3:] == ["0.50", "4", "no"]


def test_what_the_library_chose_is_said():
    actual = measured(Ranks(), sizes=(2 << 20,), cus=(None,), backends=("nccl", "triton"))
    [line] = [line for line in shown(actual).splitlines() if "triton" in line]
    assert line.split()[-2:] == ["auto", "yes"]
    actual = measured(Ranks(), sizes=(8 << 10,), tune=True, op="all_reduce")
    [line] = [line for line in shown(actual, 80).splitlines() if "gluon" in line]
    assert line.split()[-2:] == [str(actual.sizes[0].best("gluon").key.cus), "yes"]
    assert "…" not in shown(actual, 80)


def test_an_emulated_time_is_labelled_and_has_no_aim():
    actual = measured(Ranks(ranks=2), device="emulated", arch="gfx942", ranks=2)
    text = shown(actual)
    assert "not a bandwidth of any GPU" in text
    assert "yes" not in text
    assert "not a bandwidth" in writing.to_json(actual)["warning"]


def test_progress_without_a_terminal_is_a_line_now_and_then(capsys):
    now = [0.0]
    with ProgressDisplay(Console(force_terminal=False, width=100), interval=10, clock=lambda: now[0]) as display:
        display.op(results().request)
        display.size(results().sizes[0], 20)
        for _ in range(20):
            now[0] += 1
            display.step(CellKey("gluon", 8))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "0 s: all_gather fp16, 2 MiB: begins",
        "10 s: all_gather fp16, 2 MiB: 9/20 timings, gluon with 8 CUs",
        "20 s: all_gather fp16, 2 MiB: 19/20 timings, gluon with 8 CUs",
    ]


def test_progress_on_a_terminal_ends_clean():
    text = io.StringIO()
    with ProgressDisplay(Console(force_terminal=True, width=100, file=text)) as display:
        display.size(results().sizes[0], 2)
        display.step(CellKey("nccl"))
        display.step(CellKey("gluon", 8))
        assert display._bar.tasks[0].completed == 1
    assert "2 MiB" in text.getvalue()
    assert text.getvalue().endswith("\x1b[2K")  # the bar is wiped away


def test_a_figure_has_what_can_be_swept_and_across_it_what_cannot(tmp_path):
    actual = measured(
        Ranks(errs=[("triton", 4), ("triton", 8)]), sizes=(2 << 20,), cus=(None, 4, 8),
        backends=("nccl", "nccl-ctas", "gluon", "triton"),
    )  # fmt: skip
    figure = plots._against_cus(actual, actual.sizes[0])
    [axes] = figure.axes
    lines = {line.get_label(): list(line.get_xdata()) for line in axes.get_lines()}
    assert {name: places for name, places in lines.items() if places == [4, 8]}.keys() == {
        "gluon", "torch.distributed (NCCL 2.28), CTAs limited",
    }  # fmt: skip
    assert {name for name, places in lines.items() if places != [4, 8]} == {
        "torch.distributed (NCCL 2.28)", "torch.distributed (NCCL 2.28) queued", "gluon, as it configures itself",
        "triton, as it configures itself",
    }  # fmt: skip
    names = [path.name for path in plots.draw(actual, tmp_path)]
    assert names == ["all_gather-2MiB-cus.png", "all_gather-sizes.png"]
    tuned = measured(Ranks(), sizes=(2 << 20,), tune=True)
    assert [path.name for path in plots.draw(tuned, tmp_path)] == ["all_gather-sizes.png"], "candidates are not a sweep"
