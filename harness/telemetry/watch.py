"""The starter's side of the recorder process: start it, hear it, notice when it is silent, end it.

Nothing here waits for the recorder but ``settled`` and ``close``, which are bounded; whatever goes wrong with it
becomes ``Watch.ended``, the reason that the evidence gives for having no telemetry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from harness.ranks.processes import memory_file
from harness.telemetry.source import Gpu
from harness.telemetry.windows import Track

SOURCES = {"rocm": "amdsmi", "cuda": "nvml"}
"""Device -> what its GPUs are read with."""
RATE = 10.0
STUCK = 5.0
"""Seconds after which a library call that has not returned counts as hung, and the recorder ends itself."""
SILENT = 10.0
"""Seconds without a line after which the recorder itself counts as hung and is killed."""


@dataclass(frozen=True)
class Window:
    """What the samples around one case say of one GPU; ``samples`` is the part of ``Span.to_json``."""

    gpu: str
    samples: Mapping[str, Any] | None
    reason: str = ""


class Watch:
    """A recorder process for ``gpus``. ``source`` is ``amdsmi`` or ``nvml``, ``rate`` in samples per second.

    ``hardware`` is what the source said of the machine, None until it did; ``ended`` is why no more samples come, None
    while they do.
    """

    def __init__(
        self, source: str, gpus: Sequence[Gpu], rate: float = RATE, stuck: float = STUCK, silent: float = SILENT
    ) -> None:
        self.source = source
        self.gpus = tuple(gpu.uuid for gpu in gpus)
        self.period = 1 / rate
        self.hardware: Mapping[str, Any] | None = None
        self.ended: str | None = None
        self.lines = 0
        self._silent = silent
        self._tracks: dict[str, Track] = {}
        self._heard = time.monotonic()
        self._news = threading.Condition()
        self._said = memory_file("recorder")
        identities = [{"uuid": gpu.uuid, "bus_id": gpu.bus_id} for gpu in gpus]
        command = [sys.executable, "-m", "harness.telemetry.process", "--source", source]
        self._process = subprocess.Popen(
            [*command, "--gpus", json.dumps(identities), "--rate", str(rate), "--stuck", str(stuck)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(self._process.stdout,), name="telemetry", daemon=True).start()

    @property
    def pid(self) -> int:
        """The recorder's process id."""
        return self._process.pid

    def window(self, gpu: str, started: float, ended: float) -> Window | None:
        """What is known of ``gpu`` around a case, seconds of ``time.time()``; None while the sample after it is due."""
        with self._news:
            self._check()
            if gpu not in self.gpus:
                return Window(gpu, None, "it was not watched")
            if gpu in self._tracks:
                found = self._tracks[gpu].window(started, ended)
                if found is not None:
                    return Window(gpu, None, found) if isinstance(found, str) else Window(gpu, found)
            if self.ended is not None:
                return Window(gpu, None, self.ended)
            return None

    def whole(self) -> list[Window]:
        """The sums over all samples so far, for each GPU."""
        with self._news:
            windows = []
            for gpu in self.gpus:
                track = self._tracks.get(gpu)
                if track is None or not track.whole.readings:
                    windows.append(Window(gpu, None, self.ended or "no sample came"))
                else:
                    windows.append(Window(gpu, {**track.whole.to_json(), "repeated": track.repeated}))
            return windows

    def wait(self, lines: int, seconds: float) -> bool:
        """Wait for more than ``lines`` lines in all, or the end, at most ``seconds``."""
        with self._news:
            return self._news.wait_for(lambda: self.lines > lines or self.ended is not None, seconds)

    def close(self, seconds: float = 2.0) -> None:
        """End the process: it is asked, and killed after ``seconds``. Again does nothing."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._kill()
        with self._news:
            self._news.wait_for(lambda: self.ended is not None, seconds)
        if self._said >= 0:
            os.close(self._said)
            self._said = -1

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- hearing -----------------------------------------------------------------------------------------------------

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self._heard = time.monotonic()
                    self._take(json.loads(line))
                    self.lines += 1
                    self._news.notify_all()
        with self._news:
            if self.ended is None:
                self.ended = f"the recorder process ended{self._last_words()}"
            self._news.notify_all()

    def _take(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "hardware":
            self.hardware = {key: value for key, value in line.items() if key != "kind"}
            self._tracks = {gpu: Track(line["fields"]) for gpu in self.gpus}
        elif line["kind"] == "sample":
            for gpu, look in line["gpus"].items():
                self._tracks[gpu].add(**look)
        else:
            self.ended = f"{self.source}: {line['reason']}"

    def _check(self) -> None:
        """Notice silence. The lock is held."""
        silent = time.monotonic() - self._heard
        if self.ended is None and silent > self._silent:
            self.ended = f"the recorder process was silent for {silent:.0f} s and was ended"
            self._kill()

    def _kill(self) -> None:
        self._process.kill()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return  # in an uninterruptible call of the driver; it dies with that call

    def _last_words(self) -> str:
        if self._said < 0:
            return ""
        text = os.pread(self._said, 1 << 16, max(0, os.fstat(self._said).st_size - (1 << 16)))
        lines = text.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""
