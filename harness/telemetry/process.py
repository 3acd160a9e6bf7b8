"""The recorder process: ``python -m harness.telemetry.process --source MODULE --gpus JSON ...``.

It writes JSON lines to its stdout: first ``hardware``, then a ``sample`` per period, and, if it cannot go on, ``ended``
with the reason. It only reads GPUs and never changes their settings, never imports torch (whose libraries clash with
``libamd_smi``), and ends when its stdin is closed: at the latest when its parent process ends.

One thread samples. The main thread watches it: if a library call does not return, the process reports the name of the
call and ends, since a call cannot be interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import resource
import select
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.telemetry.source import Source, Unavailable

_OUTPUT_LIMIT = 1 << 20
"""Bytes that libraries may print. Further output is lost, so that it cannot fill the memory."""


@dataclass(frozen=True)
class _Gpu:
    uuid: str
    bus_id: str


class Recorder:
    """Samples ``gpus`` in its own thread and writes lines to ``descriptor``.

    ``name``: the library that the source in ``module`` reads. ``period``: seconds from sample to sample; longer if a
    sample takes more than half of it.
    """

    def __init__(self, name: str, module: str, gpus: Sequence[_Gpu], period: float, descriptor: int) -> None:
        self._name = name
        self._module = module
        self._gpus = gpus
        self._period = period
        self._descriptor = descriptor
        self._source: Source | None = None
        self._entered: float | None = None
        self._stop = threading.Event()
        self._finished = threading.Event()

    def start(self) -> None:
        """Start sampling in a daemon thread."""
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def watch(self, stdin: int, stuck: float, loading: float) -> None:
        """Wait until stdin or the sampler ends, a sample takes over ``stuck`` seconds, or opening over ``loading``."""
        while not self._finished.is_set():
            readable, _, _ = select.select([stdin], [], [], min(0.2, stuck / 4))
            if readable and not os.read(stdin, 4096):
                self._stop.set()
                self._finished.wait(stuck)
                return
            entered = self._entered
            limit = stuck if self._source else loading
            if entered is not None and time.monotonic() - entered > limit:
                call = self._source.doing if self._source else f"loading {self._name}"
                self._write({"kind": "ended", "reason": f"{call} did not return within {limit:g} s"})
                return

    def _run(self) -> None:
        try:
            self._sample()
        except Unavailable as error:
            self._write({"kind": "ended", "reason": str(error)})
        except Exception:  # noqa: BLE001 - a bug: printed here, since the process ends once ``_finished`` is set
            traceback.print_exc()
        finally:
            self._finished.set()

    def _sample(self) -> None:
        self._entered = time.monotonic()
        source = self._source = _open(self._module, self._gpus)
        try:
            hardware = {"kind": "hardware", "source": source.name, "fields": list(source.fields), **source.hardware()}
            self._entered = None
            self._write(hardware)
            while not self._stop.is_set():
                began = self._entered = time.monotonic()
                line = {"kind": "sample", "gpus": {gpu.uuid: _look(source, gpu.uuid) for gpu in self._gpus}}
                self._entered = None
                took = time.monotonic() - began
                self._write(line)
                # Drivers answer slowly, some while they hold a lock: leave at least half of the time to the test.
                self._stop.wait(max(began + self._period - time.monotonic(), took))
        finally:
            source.close()

    def _write(self, line: dict[str, Any]) -> None:
        """Write one whole line. Blocks while the reader is slow, so that nothing accumulates in memory."""
        data = memoryview(json.dumps(line, separators=(",", ":"), allow_nan=False, default=str).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except BrokenPipeError:
            self._stop.set()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until stdin ends. Never returns."""
    parser = argparse.ArgumentParser(prog="python -m harness.telemetry.process")
    parser.add_argument("--source", required=True, help="the module with open_source(gpus)")
    parser.add_argument("--name", required=True, help="the library that it reads, for messages")
    parser.add_argument("--gpus", required=True, help='[{"uuid": ..., "bus_id": ...}, ...]')
    parser.add_argument("--rate", type=float, required=True, help="samples per second")
    parser.add_argument("--stuck", type=float, required=True, help="seconds that a sample may take")
    parser.add_argument("--loading", type=float, required=True, help="seconds that opening the library may take")
    options = parser.parse_args(arguments)
    gpus = [_Gpu(gpu["uuid"], gpu["bus_id"]) for gpu in json.loads(options.gpus)]
    # Libraries may print to stdout (amdsmi if it is missing), so the lines have their own descriptor.
    lines = os.dup(1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_OUTPUT_LIMIT, _OUTPUT_LIMIT))
    recorder = Recorder(options.name, options.source, gpus, 1 / options.rate, lines)
    recorder.start()
    recorder.watch(0, options.stuck, options.loading)
    # A call that hangs in the library would keep an orderly exit waiting.
    os._exit(0)


def _open(module: str, gpus: Sequence[_Gpu]) -> Source:
    opened: Source = importlib.import_module(module).open_source(gpus)
    return opened


def _look(source: Source, uuid: str) -> dict[str, Any]:
    began = time.time()
    sample = source.read(uuid)
    for name in [name for name, value in sample.values.items() if not math.isfinite(value)]:
        sample.unavailable[name] = f"{sample.values.pop(name)} is not a finite number"
    return {
        "began": began,
        "ended": time.time(),
        "stamp": sample.stamp,
        "values": sample.values,
        "unavailable": sample.unavailable,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
