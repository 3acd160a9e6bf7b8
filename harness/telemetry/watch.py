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
from typing import Any

from harness.ranks.processes import describe_signal, memory_file
from harness.telemetry.source import Gpu
from harness.telemetry.windows import Track

SOURCES = {"rocm": "amdsmi", "cuda": "nvml"}
"""Device -> what its GPUs are read with."""
RATE = 10.0
LOADING = 6
"""So many times longer than a sample may opening a library take: drivers that are not kept loaded start slowly."""
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
        self._silent, self._loading = silent, stuck * LOADING
        self._tracks: dict[str, Track] = {}
        self._heard = time.monotonic()
        self._news = threading.Condition()
        self._said = memory_file("recorder")
        identities = [{"uuid": gpu.uuid, "bus_id": gpu.bus_id} for gpu in gpus]
        command = [sys.executable, "-m", "harness.telemetry.process", "--source", source, "--rate", str(rate)]
        command += ["--gpus", json.dumps(identities), "--stuck", str(stuck), "--loading", str(self._loading)]
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,
            )
        except OSError as error:
            self.ended = f"the recorder process could not be started: {error}"
            return
        self._listener = threading.Thread(target=self._listen, args=(self._process,), name="telemetry", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int | None:
        """The recorder's process id; None when it could not be started."""
        return self._process.pid if self._process else None

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
        """The sums over all samples so far, for each GPU, with how many repeated another and how long looking took."""
        with self._news:
            windows = []
            for gpu in self.gpus:
                track = self._tracks.get(gpu)
                if track is None or not track.whole.readings:
                    windows.append(Window(gpu, None, self.ended or "no sample came"))
                else:
                    more = {"repeated": track.repeated, "seconds_per_look": round(track.looking / track.looks, 6)}
                    windows.append(Window(gpu, {**track.whole.to_json(), **more}))
            return windows

    def wait(self, lines: int, seconds: float) -> bool:
        """Wait for more than ``lines`` lines in all, or the end, at most ``seconds``."""
        with self._news:
            return self._news.wait_for(lambda: self.lines > lines or self.ended is not None, seconds)

    def close(self, seconds: float = 2.0) -> None:
        """End the process: it is asked, and killed after ``seconds``. Again does nothing."""
        if self._process is not None:
            if self._process.stdin and not self._process.stdin.closed:
                self._process.stdin.close()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._kill(self._process)
        if self._listener is not None:
            self._listener.join(seconds)
            if self._listener.is_alive():
                return  # the process cannot be killed now; the thread still needs what it said
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

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # sanity check: it was started with a pipe
        reason = None
        with process.stdout as stream:
            for line in stream:
                with self._news:
                    self._heard = time.monotonic()
                    try:
                        self._take(json.loads(line))
                    except (ValueError, KeyError, TypeError) as error:
                        reason = f"the recorder said what is not understood: {type(error).__name__}: {error}"
                        break
                    self.lines += 1
                    self._news.notify_all()
        reason = reason or self._last_words(process)
        with self._news:
            self.ended = self.ended or reason
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
        silent, allowed = time.monotonic() - self._heard, self._silent + (0 if self.hardware else self._loading)
        if self.ended is None and self._process is not None and silent > allowed:
            self.ended = f"the recorder process was silent for {silent:.0f} s and was ended"
            self._kill(self._process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            return  # in an uninterruptible call of the driver; it dies with that call

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        """How the process ended, once its stream has."""
        try:
            status = process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "the recorder process closed its stream"
        how = f"by {describe_signal(-status)}" if status < 0 else f"with status {status}" if status else ""
        said = (
            os.pread(self._said, 1 << 20, 0).decode("utf-8", "replace").strip().splitlines() if self._said >= 0 else []
        )
        return " ".join(["the recorder process ended", *([how] if how else [])]) + (
            f": {said[-1][:300]}" if said else ""
        )
