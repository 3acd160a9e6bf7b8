"""Run the tests in ``on_the_machine.py`` in a process of their own: what they install in torch stays for its life."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("on_the_machine.py")


@pytest.mark.slow
def test_programs_compute_on_emulated_gpus_what_they_compute_on_the_cpu():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(TESTS)]
    done = subprocess.run(command, cwd=TESTS.parents[3], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr
