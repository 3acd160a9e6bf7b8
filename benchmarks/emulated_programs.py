"""Run the programs of a folder, unmodified, on one emulated MI300X, and print a table of how far each one came.

python -m benchmarks.emulated_programs FOLDER [--seconds 60] [--only 01,03] [--checks]

The folder is the user's, such as a copy of Triton's ``python/tutorials``: nothing is downloaded. A program runs in an
empty folder and is stopped after ``--seconds``: benchmarks at the sizes of a GPU do not end within useful time on the
emulator. The table states then when its last line of output appeared, and which line that was. With ``--checks`` the
programs, still unmodified, skip their ``triton.testing`` benchmarks, so that the seconds are those of their checks.

``torch on the CPU`` is the time of the torch operator that the program compares its kernel with, at the size of that
comparison, on plain CPU tensors and the cores that the program had. It is one call; the program's seconds include
imports and compilation.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Run:
    """One run. ``output``: seconds since the start and text of each line; ``status``: None if it was stopped."""

    output: list[tuple[float, str]]
    status: int | None
    seconds: float

    def result(self) -> str:
        """Return the verdict in words."""
        if self.status is None:
            return f"stopped after {self.seconds:.0f} s"
        return "ran to its end" if self.status == 0 else f"failed with exit status {self.status}"

    def last_line(self) -> str:
        """Return the last line of output, or where there was none a dash."""
        lines = [(when, text) for when, text in self.output if text.strip()]
        return f"{lines[-1][0]:.1f} s: `{lines[-1][1].strip()[:70]}`" if lines else "-"


_CHECKS = """
import runpy, sys, triton.testing
triton.testing.Mark.run = lambda self, *arguments, **options: print("benchmark skipped")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Program that runs another one with the benchmarks of ``triton.testing.perf_report`` left out."""


def run(program: Path, seconds: float, checks: bool = False) -> Run:
    """Run a program under ``iris-harness emulate`` and end it, with all its children, after ``seconds``.

    ``checks``: leave out its benchmarks.
    """
    command = [sys.executable, "-m", "command_line", "emulate", "--arch", "gfx942", "--gpus", "1", "--"]
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        process = subprocess.Popen(
            [*command, "python", *(["-c", _CHECKS] if checks else []), str(program.resolve())], cwd=folder,
            env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        output: queue.Queue[tuple[float, str]] = queue.Queue()
        reader = threading.Thread(target=_read, args=(process, output, start))
        reader.start()
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
        reader.join()
        return Run(list(output.queue), status, time.monotonic() - start)


def _read(process: subprocess.Popen[str], output: queue.Queue[tuple[float, str]], start: float) -> None:
    assert process.stdout is not None  # sanity check: it is a pipe
    for line in process.stdout:
        output.put((time.monotonic() - start, line))


def _end(process: subprocess.Popen[str]) -> None:
    """End the process group that ``run`` started."""
    with contextlib.suppress(ProcessLookupError):  # the program and its children have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _layer_norm() -> Callable[[], object]:
    x = torch.randn(1151, 8192, dtype=torch.float16, requires_grad=True)
    weight, bias = (torch.rand(8192, dtype=torch.float16, requires_grad=True) for _ in range(2))
    gradient = torch.randn_like(x)
    return lambda: torch.nn.functional.layer_norm(x, (8192,), weight, bias).backward(gradient)


def _matmul() -> Callable[[], object]:
    x, y = torch.randn(512, 512).half(), torch.randn(512, 512).half()
    return lambda: x @ y


def _add() -> Callable[[], object]:
    x, y = torch.rand(98432), torch.rand(98432)
    return lambda: x + y


def _softmax() -> Callable[[], object]:
    x = torch.randn(1823, 781)
    return lambda: torch.softmax(x, dim=1)


def _grouped() -> Callable[[], object]:
    pairs = [(torch.rand(size, size).half(), torch.rand(size, size).half()) for size in (1024, 512, 256, 128)]
    return lambda: [a @ b for a, b in pairs]


def _small_product() -> Callable[[], object]:
    x, y = torch.randn(32, 32).half(), torch.randn(32, 32).half()
    return lambda: x @ y.T


def _attention() -> Callable[[], object]:
    q, k, v = (torch.randn(1, 2, 128, 64, dtype=torch.float16, requires_grad=True) for _ in range(3))
    gradient = torch.randn(1, 2, 128, 64, dtype=torch.float16)
    return lambda: (torch.softmax((q @ k.mT * 0.5).float(), dim=-1).half() @ v).backward(gradient)


TORCH_PARTS: dict[str, Callable[[], Callable[[], object]]] = {
    "01-vector-add.py": _add,
    "02-fused-softmax.py": _softmax,
    "03-matrix-multiplication.py": _matmul,
    "05-layer-norm.py": _layer_norm,
    "06-fused-attention.py": _attention,
    "08-grouped-gemm.py": _grouped,
    "09-persistent-matmul.py": _small_product,
}
"""Name of a Triton tutorial -> the torch operator of its own check, at its size (the smallest of several)."""


def milliseconds(program: str) -> str:
    """Return the time of the program's torch part on CPU tensors, the best of five; a dash if it has none."""
    if program not in TORCH_PARTS:
        return "-"
    call = TORCH_PARTS[program]()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return f"{min(times) * 1e3:.2f} ms"


def programs(folder: Path, only: str) -> list[Path]:
    """Return the programs of a folder, or those whose names start with one of ``only``'s words."""
    words = tuple(filter(None, only.split(",")))
    chosen = [path for path in sorted(folder.glob("*.py")) if not words or path.name.startswith(words)]
    if not chosen:
        raise SystemExit(f"{folder}: expected programs *.py{' that start with ' + only if words else ''}, found none")
    return chosen


def main() -> None:
    """Print a table in Markdown, a row as soon as its program has ended; exit status 1 if a program failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0, help="the time for each program")
    parser.add_argument("--only", default="", help="starts of names, separated by commas")
    parser.add_argument("--checks", action="store_true", help="leave out the benchmarks of triton.testing")
    arguments = parser.parse_args()
    print("| program | SHA-256 | result | seconds | last output | torch on the CPU |")
    print("| --- | --- | --- | ---: | --- | ---: |")
    failed = False
    for program in programs(arguments.folder, arguments.only):
        digest = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
        done = run(program, arguments.seconds, arguments.checks)
        row = (program.name, digest, done.result(), f"{done.seconds:.1f}", done.last_line(), milliseconds(program.name))
        print(f"| {' | '.join(row)} |", flush=True)
        if done.status not in (0, None):
            failed = True
            sys.stderr.writelines(text for _, text in done.output[-15:])
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
