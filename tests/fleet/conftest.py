"""A Slurm of four nodes for the tests of this folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import cluster


@pytest.fixture
def slurm() -> Iterator[cluster.Cluster]:
    """A running cluster; the test is skipped, in CI failed, where Slurm is not installed."""
    if missing := cluster.missing():
        reason = f"Slurm is not installed: {', '.join(missing)}"
        if os.environ.get("IRIS_HARNESS_SLURM") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    # A short folder: a path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="iris-slurm-") as folder, cluster.running(Path(folder)) as running:
        yield running
