"""Speed of the emulated device, compared with a lower bound in NumPy.

    python benchmarks/emulator
    python benchmarks/emulator --only matmul --profile
    python benchmarks/emulator --repeat 5 --json
    python benchmarks/emulator --modes

Each benchmark stands next to its floor: NumPy's own time for the same array operations, taken in the same run (see
``floor``). The machine's speed cancels in that ratio. Times are processor time of this process, on one core.

Columns: million wavefront-instructions and lane-instructions a second, milliseconds of a warm launch, the floor, their
ratio, the first launch, and translating the program to native code, or loading that code from disk. Matrix products are
also compared with NumPy's product of float32 matrices. ``large-matmul`` takes seconds and is measured only if named.

No other emulator is measured for comparison: that of tinygrad (0.14.0) is neither in its wheel nor in its source
distribution on PyPI, only in its repository's tests.
"""

from __future__ import annotations

import argparse
import json
import os

if __name__ == "__main__":
    # One thread, in NumPy's matrix products too: set before NumPy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.emulator import measure
from benchmarks.emulator.kernels import BENCHMARKS, SLOW
from harness import emulator

COLUMNS = (
    ("Mwi/s", "million_wavefront_instructions_per_second"), ("Mli/s", "million_lane_instructions_per_second"),
    ("ms", "ms"), ("floor ms", "floor_ms"), ("ratio", "ratio_to_floor"), ("first ms", "first_ms"),
    ("translate ms", "translate_ms"),
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=[*BENCHMARKS, *SLOW], help="run this benchmark; may be repeated"
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds of each measurement; the median counts")
    parser.add_argument("--core", type=int, default=None, help="pin the process to this core")
    parser.add_argument("--interpreted", action="store_true", help="execute in the interpreter")
    parser.add_argument("--profile", action="store_true", help="report where the time goes, by class and instruction")
    parser.add_argument("--modes", action="store_true", help="compare a launch in the watched modes with one in fast")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, not {options.repeat}")
    if options.core is not None:
        if options.core not in os.sched_getaffinity(0):
            parser.error(f"--core {options.core}: this process may use {sorted(os.sched_getaffinity(0))}")
        os.sched_setaffinity(0, {options.core})
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "TRITON_DEFAULT_FP_FUSION", UserWarning)
    figures = {}
    if options.modes:
        return _modes(options.only or list(BENCHMARKS), options.repeat, options.json)
    if not options.json:
        print(f"{'':<12}" + "".join(f"{title:>13}" for title, _ in COLUMNS))
    for name in options.only or BENCHMARKS:
        driver = emulator.activate()
        driver.cores = 1
        try:
            benchmark = {**BENCHMARKS, **SLOW}[name](driver)
            measured = measure.measure(driver, benchmark, options.repeat, not options.interpreted)
            profile = measure.profile(driver, benchmark, options.repeat) if options.profile else ""
        finally:
            emulator.deactivate()
        figures[name] = measured.as_data()
        if options.json:
            continue
        print(f"{name:<12}" + "".join(f"{figures[name][column]:>13.3f}" for _, column in COLUMNS), flush=True)
        if measured.reference_ms is not None:
            print(f"  {measured.ratio_to_reference:.1f} times NumPy's float32 product, {measured.reference_ms:.3f} ms")
        if profile:
            print(f"  {measured.title}\n{profile}")
    if options.json:
        print(json.dumps(figures, indent=2))
    return 0


def _modes(names: list[str], repeat: int, as_json: bool) -> int:
    """Print milliseconds of a launch in each mode, and how many times those of ``fast`` that is."""
    figures = {}
    if not as_json:
        print(f"{'ms (times fast)':<16}" + "".join(f"{mode:>18}" for mode in measure.MODES))
    for name in names:
        figures[name] = taken = measure.modes({**BENCHMARKS, **SLOW}[name], repeat)
        cells = (f"{ms:>9.3f} ({ms / taken['fast']:>5.1f})" for ms in taken.values())
        if not as_json:
            print(f"{name:<16}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
    if as_json:
        print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
