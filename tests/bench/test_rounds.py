"""benchmarks/rounds.py, and what benchmarks/fused.py and latency.py time, without ranks."""

import types

import pytest
import torch

from benchmarks import fused, latency, rounds
from harness.oracles import reference
from harness.ranks import RankCrash
from iris_under_test.ops import FusedConfig


class Ranks:
    """Two ranks with two cells; the other rank is slower, and a round takes longer than the one before."""

    def __init__(self, fails=""):
        self.fails = fails
        self.calls = []

    def call(self, target, payload=None, deadline=30.0):
        module, _, name = target.partition(":")
        assert module == "benchmarks.any"
        assert deadline >= 30
        self.calls.append((name, payload))
        if payload is not None and payload == self.fails:
            raise RankCrash({1: "exit status 7"}, {})
        if name == "cells":
            return [["one", "two"]] * 2
        before = sum(call == (name, payload) for call in self.calls) - 1
        return [1e-6, (10 if payload == "two" else 5) * 1e-6 + before * 1e-6] if name == "measure" else [None] * 2


def test_cells_are_prepared_and_take_turns_and_each_step_is_told():
    ranks, reported = Ranks(), []
    figures = rounds.measured("benchmarks.any", ranks, 3, reported.append)
    assert ranks.calls == [
        ("cells", None), ("prepare", "one"), ("prepare", "two"), *[("measure", "one"), ("measure", "two")] * 3,
    ]  # fmt: skip
    assert reported == [
        "preparing 1 of 2: one", "preparing 2 of 2: two", "round 1 of 3", "round 2 of 3", "round 3 of 3",
    ]  # fmt: skip
    assert figures["one"] == pytest.approx({"median": 6, "p10": 5.2, "p90": 6.8}), "us of the slowest rank"
    assert figures["two"] == pytest.approx({"median": 11, "p10": 10.2, "p90": 11.8})


def test_the_spread_is_in_microseconds():
    assert rounds.spread([second * 1e-6 for second in range(11)]) == pytest.approx({"median": 5, "p10": 1, "p90": 9})


@pytest.mark.parametrize(
    ("words", "case"),
    [
        (["--ranks", "0"], "--ranks 0: use 1, 2, 4"),
        (["--ranks", "two"], "'two'"),
        (["--repeat", "0"], "--repeat 0: use 1 round or more"),
        (["--json", "/nowhere/figures.json"], "--json /nowhere/figures.json: name a file in a folder that exists"),
        (["--json", "/"], "--json /: name a file"),
        (["--device", "tpu"], "'tpu'"),
    ],
)
def test_bad_options_are_told_before_anything_starts(words, case, capsys):
    with pytest.raises(SystemExit) as caught:
        rounds.options("", (1, 2, 4), words)
    assert caught.value.code == 2
    assert case in capsys.readouterr().err.splitlines()[-1]


def test_a_range_of_ranks_is_told_as_one(capsys):
    with pytest.raises(SystemExit):
        rounds.options("", range(1, 65), ["--ranks", "65"])
    assert "use 1 to 64" in capsys.readouterr().err


def test_options_that_are_right():
    given = rounds.options("", (1, 2, 4), ["--ranks", "4"])
    assert (given.device, given.ranks, given.repeat, given.json) == ("emulated", 4, 10, None)


class Device:
    synchronize = drain_launches = staticmethod(lambda: None)


@pytest.fixture
def alone(monkeypatch):
    """One rank, whose clock reports 8 ms for everything that it runs."""
    monkeypatch.setattr(reference, "barrier", lambda: None)

    def time(run, check):
        run()
        return 8e-3, bool(check())

    return types.SimpleNamespace(time=time)


@pytest.mark.parametrize("left", [0, 5])
def test_a_fused_product_that_is_not_torchs_has_no_time(alone, left):
    """Also where a product before was right: the output is cleared."""
    cell = fused.cells_on("emulated")[len(fused.BESIDE)]
    output = torch.full((2,), 3)

    def run():
        if left:
            output.fill_(left)

    problem = types.SimpleNamespace(output=output, right=lambda: torch.all(output == 3))
    bench = types.SimpleNamespace(
        cells={"it": cell}, problem=lambda cell: problem, device=Device, clock=alone, runs={"it": run}
    )
    with pytest.raises(RuntimeError, match="it gave another result than torch"):
        fused.measure(bench, "it")
    bench.runs["it"] = lambda: output.fill_(3)
    assert fused.measure(bench, "it") == 8e-3 / fused.CALLS


@pytest.mark.parametrize("wrong", [None, latency.FEW, latency.MANY])
def test_a_latency_is_that_of_a_step_that_was_right(alone, wrong):
    done = []
    time = alone.time
    alone.time = lambda run, check: (1e-3 + 2e-6 * run(), time(run, check)[1])
    bench = types.SimpleNamespace(
        cells_of=lambda: {"put 16 B remote": (None, lambda steps: steps != wrong)}, device=Device, clock=alone,
        ready={("put 16 B remote", steps): lambda steps=steps: steps for steps in (latency.FEW, latency.MANY)},
        restart=lambda: done.append("restart"), ways=lambda name: 2,
    )  # fmt: skip
    if wrong is None:
        assert latency.measure(bench, "put 16 B remote") == pytest.approx(1e-6), "what is paid once falls out"
        assert len(done) == 2
    else:
        with pytest.raises(RuntimeError, match=f"put 16 B remote with {wrong} steps left wrong values"):
            latency.measure(bench, "put 16 B remote")


@pytest.mark.parametrize("device", fused.SHAPES)
def test_every_fused_way_stands_beside_torch(device):
    cells = fused.cells_on(device)
    assert len(set(map(str, cells))) == len(cells)
    for cell in cells:
        for way in fused.BESIDE:
            assert cell.beside(way) in cells


@pytest.mark.parametrize("ranks", fused.RANKS)
@pytest.mark.parametrize("device", fused.SHAPES)
def test_a_share_of_a_reduce_scatter_is_a_band(device, ranks):
    """Of rows: whole groups of rows of tiles; of columns: whole columns of the only row."""
    for shape in fused.SHAPES[device]:
        for fields in fused.WAYS["matmul_reduce_scatter"].values():
            config = FusedConfig(**{**fields, **(fused.EMULATED if device == "emulated" else {})})
            rows, columns = -(-shape.m // config.block_size_m), -(-shape.n // config.block_size_n)
            if fused.share_axis(shape, device == "emulated") == 0:
                assert shape.m % (ranks * config.block_size_m * config.group_size_m) == 0
            else:
                assert (rows, columns % ranks) == (1, 0)


def test_the_share_that_is_hidden(capsys):
    """Of 10 us of products and 4 us of transfer 12 are left: 2 of 4."""
    given = rounds.options("", (2,), [])
    times = {"both": 15.0, "matmul": 10.0, "collective": 4.0}
    figures = {
        str(cell): dict.fromkeys(("median", "p10", "p90"), times.get(cell.way, 12.0))
        for cell in fused.cells_on("emulated")
    }
    fused._show(figures, given)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "all_gather_matmul" in line]
    assert [cell.strip() for cell in line.split("│")[4:-1]] == ["12", "12-12", "15", "1.25", "10", "4", "50%"]
