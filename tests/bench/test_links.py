"""benchmarks/links.py on emulated ranks, and what its check does not take."""

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from benchmarks.links import Links, words_of
from harness.oracles import reference

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_it_runs(tmp_path):
    command = [sys.executable, "-m", "benchmarks.links", "--ranks", "3", "--repeat", "1", "--json", tmp_path / "f.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "f.json").read_text())["microseconds"]
    assert list(figures) == ["put to 1", "get from 1", "put to 2", "get from 2"]
    assert all(name in done.stdout for name in figures)


@pytest.mark.parametrize("ranks", range(2, 9))
def test_parts_are_whole_on_gpus(ranks):
    """448 MiB within a percent, and of each number of parts every one is whole tiles of 1,024 words."""
    words = words_of(ranks, types.SimpleNamespace(name="cuda", lanes=32))
    assert 0.99 < words / (112 << 20) <= 1
    assert all(words % (peers * 1024) == 0 for peers in range(1, ranks))


@pytest.mark.parametrize(
    ("name", "parts", "fine"),
    [
        ("put to 2", [3, 2], True),  # rank 0 of 3: from rank 2, one behind it, and from rank 1
        ("put to 2", [2, 3], False),
        ("put to 2", [3, 0], False),
        ("get from 2", [2, 3], True),
        ("get from 2", [3, 2], False),
    ],
)
def test_what_comes_from_elsewhere_is_wrong(monkeypatch, name, parts, fine):
    monkeypatch.setattr(reference, "barrier", lambda: None)
    target = torch.tensor(parts, dtype=torch.int32).repeat_interleave(4)
    rank = types.SimpleNamespace(rank=0, ranks=3, target=target, device=types.SimpleNamespace(synchronize=lambda: None))
    assert Links.right(rank, name) == fine
    assert not target.any(), "the next time all must come anew"
