"""The scripts that the jobs of a submission run. Paths in them are quoted for the shell."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from command_line.fleet.submission import AGAIN, ATTRIBUTE, MERGE, TASK
from harness.files import write_whole

_SCRIPT = """#!/bin/sh
# Written by iris-harness submit. It replaces itself by Python, which gets the signals of Slurm.
export PYTHONSAFEPATH=1
cd {folder} || exit 75
exec {python} -m command_line.fleet.job {role} {folder} "$@"
"""


def write(folder: Path) -> None:
    """Write the scripts into the folder of a submission."""
    for name, role in ((TASK, "shard"), (MERGE, "merge"), (AGAIN, "again"), (ATTRIBUTE, "attribute")):
        text = _SCRIPT.format(folder=shlex.quote(str(folder)), python=shlex.quote(sys.executable), role=role)
        write_whole(folder / name, text)
