"""Runs of the suite on heap providers and on the stand-in for torch symmetric memory, and entry points to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import python

ROOT = Path(__file__).resolve().parents[2]


def installed(folder: Path, adapter: str, value: str) -> None:
    """Write the metadata of an installed distribution with an entry point to ``folder``, which may be on sys.path."""
    info = folder / f"{adapter.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {adapter}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[iris_harness.adapters]\n{adapter} = {value}\n")


def run_suite(folder: Path, implementation: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the parts of the suite for adapters, or those that ``arguments`` name, with evidence in ``folder``."""
    (folder / "evidence.jsonl").unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", "0", "--level", "ci"]
    command += ["--implementation", implementation, "--evidence", str(folder / "evidence.jsonl"), "--deadline", "60"]
    return python.run(
        [*command, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": path, **variables}, timeout=400
    )
