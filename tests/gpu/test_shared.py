"""Ranks that share a GPU: heaps come from handles between processes, and go back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import evidence
from tests.gpu import rig

REASON = rig.reason(gpus=1)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

ROOT = Path(__file__).parents[2]
LIMIT = 600


def test_the_suite_on_one_gpu(tmp_path):
    """Four ranks, of which groups of three make workspaces; instances are made and closed, and no memory is lost."""
    chosen = "test_accumulating_variants or test_life_cycles or test_overlapping_groups or test_instances_at_once"
    file = tmp_path / "evidence.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "conformance", "--device", rig.device(), "-k",
         chosen, "--ranks", "4", "--ranks-per-gpu", "4", "--level", "ci", "--evidence", str(file)],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    actual = evidence.read(file)
    assert (actual.runs[-1].ranks, actual.runs[-1].ranks_per_gpu) == ((4,), 4)
    reported = [json.dumps(gpu) for record in actual.telemetry if record.cases for gpu in record.gpus]
    assert reported and all('"rank"' in gpu for gpu in reported)
