"""Compiler options of another vendor's GPUs have no effect on a launch; one that no back end has is still refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.devices.launch_options import foreign

ROOT = Path(__file__).resolve().parents[2]


def test_only_options_of_other_back_ends_are_foreign() -> None:
    given = {"waves_per_eu": 2, "num_warps": 4, "maxnreg": 64, "kpack": 2, "typo": 1}
    assert foreign(given, "cuda", ()) == {"waves_per_eu", "kpack"}
    assert foreign(given, "hip", ()) == {"maxnreg"}
    assert foreign(given, "cuda", ("kpack",)) == {"waves_per_eu"}, "a parameter of the kernel"


PROGRAM = """
import torch, triton, triton.language as tl
from harness import devices
from harness.devices import launch_options

@triton.jit
def fill(target, maxnreg_of_mine, BLOCK: tl.constexpr):
    tl.store(target + tl.arange(0, BLOCK), maxnreg_of_mine)

devices.known("emulated", "gfx942", "fast", 1).activate(0)
target = torch.zeros(64, dtype=torch.int32)
try:
    fill[(1,)](target, 7, BLOCK=64, maxnreg=64)
except KeyError as error:
    print("before:", error)
launch_options.ignore_foreign()
launch_options.ignore_foreign()
fill[(1,)](target, 7, BLOCK=64, maxnreg=64, waves_per_eu=2)
print("sum:", int(target.sum()))
try:
    fill[(1,)](target, 7, BLOCK=64, maxnregs=64)
except KeyError as error:
    print("after:", error)
"""


@pytest.mark.slow
def test_a_launch_with_an_option_of_another_vendor_runs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    before, total, after = done.stdout.splitlines()
    assert "maxnreg was specified but unrecognised" in before and "maxnregs was specified" in after
    assert total == f"sum: {7 * 64}"
