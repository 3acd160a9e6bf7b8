"""Run ``launches.py`` on an emulated machine, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from harness.emulated_machine import Settings

PROGRAM = Path(__file__).with_name("launches.py")


def test_launches_in_graphs_and_through_addresses():
    environment = Settings(gpus=1).environment(os.environ)
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout.count(": ok") == 5, done.stdout + done.stderr
