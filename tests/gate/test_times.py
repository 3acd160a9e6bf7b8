"""Times of benchmarks of base and head: a planted regression, noise, and files that cannot be compared."""

import json
import random

import pytest

from command_line.gate.statistics import FASTER, SAME, SLOWER, UNCLEAR
from command_line.gate.times import compared
from harness.errors import UsageError


def bench(path, seed, scale=1.0, noise=0.01, status="ok", rounds=20, **request):
    draw = random.Random(seed)
    times = [[100 * scale * (1 + noise * draw.gauss(0, 1)), 90.0] for _ in range(rounds)]
    cell = {"cus": None, "config": {"BLOCK": 8}, "status": status, "times_us": times}
    plain = {
        "schema": 1,
        "request": {"op": "all_reduce", "device": "rocm", "arch": "gfx942", "ranks": 2, "dtype": "fp16", **request},
        "sizes": [{"bytes": 1024, "cells": [{**cell, "backend": "gluon"}, {**cell, "backend": "torch"}]}],
    }
    path.write_text(json.dumps(plain))
    return path


def answer(folder, **head):
    base = bench(folder / "base.json", 1, noise=head.get("noise", 0.01))
    [(cell, comparison)] = compared([(base, bench(folder / "head.json", 2, **head))])
    assert cell == "all_reduce fp16 1024 B gluon BLOCK 8"
    return comparison.answer


@pytest.mark.parametrize(("scale", "word"), [(1.1, SLOWER), (0.8, FASTER), (1.0, SAME)])
def test_a_planted_change_is_reported(tmp_path, scale, word):
    assert answer(tmp_path, scale=scale) == word


def test_noise_is_undecided(tmp_path):
    assert answer(tmp_path, scale=1.05, noise=0.4) == UNCLEAR


def test_several_pairs_add_their_rounds(tmp_path):
    pairs = [
        (bench(tmp_path / f"b{n}.json", n, rounds=5), bench(tmp_path / f"h{n}.json", n + 9, 1.1, rounds=5))
        for n in range(4)
    ]
    assert [one.answer for _, one in compared(pairs[:1])] == [UNCLEAR]
    assert [one.answer for _, one in compared(pairs)] == [SLOWER]


def test_medians_are_one_sample_of_each_file(tmp_path):
    """Rounds of one process that was slow as a whole prove nothing: 3 files are too few, whatever their rounds."""
    pairs = [(bench(tmp_path / f"b{n}.json", n), bench(tmp_path / f"h{n}.json", n + 9, 1.1)) for n in range(8)]
    assert [one.answer for _, one in compared(pairs[:3])] == [SLOWER]
    assert [one.answer for _, one in compared(pairs[:3], medians=True)] == [UNCLEAR]
    assert [one.answer for _, one in compared(pairs, medians=True)] == [SLOWER]


def test_a_wrong_output_has_no_time(tmp_path):
    pair = bench(tmp_path / "base.json", 1), bench(tmp_path / "head.json", 2, status="wrong")
    assert [one for _, one in compared([pair])] == [None]


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"device": "emulated"}, "not times of a GPU"),
        ({"arch": "gfx950"}, "is of device rocm, arch gfx942, ranks 2, and .* of device rocm, arch gfx950, ranks 2"),
        ({"ranks": 4}, "ranks 4"),
    ],
)
def test_files_that_cannot_be_compared_are_refused(tmp_path, request_, problem):
    pair = bench(tmp_path / "base.json", 1), bench(tmp_path / "head.json", 2, **request_)
    with pytest.raises(UsageError, match=problem):
        list(compared([pair]))


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 1, "request": {}, "sizes": []}', "[" * 100000])
def test_what_is_not_a_benchmark_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=r"expected a bench\.json"):
        list(compared([(tmp_path / "x.json", tmp_path / "x.json")]))
