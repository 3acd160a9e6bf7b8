"""Runs of the suite on copies of the library with planted defects, see ``mutants.planting``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mutants.planting import NAME, ROOT
from tests import python


def without_promises(folder: Path) -> None:
    """Take back what the copy in ``folder`` promises about its code: only the code's effects are judged then, and
    no collective fails because its code lacks a fence."""
    (folder / NAME / "promises.py").write_text('"""None."""\n', encoding="utf-8")


def run_suite(folder: Path, *arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run pytest on the conformance suite in a child process, with the copy in ``folder`` as the implementation.

    Its evidence is ``folder``'s evidence.jsonl, and replaces that of an earlier call.
    """
    (folder / "evidence.jsonl").unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--implementation", NAME]
    command += ["--evidence", str(folder / "evidence.jsonl"), *arguments]
    return python.run(command, cwd=ROOT, env=environment, timeout=timeout)
