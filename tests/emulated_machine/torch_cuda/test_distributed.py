"""``torch.distributed`` with nccl and symmetric memory between processes with emulated GPUs."""

import subprocess
import sys

import pytest


@pytest.mark.nightly
def test_collectives_and_symmetric_memory():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "tests.emulated_machine.torch_cuda.collectives"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
