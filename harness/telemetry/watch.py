"""Parent's side of the recorder process: start it, read its lines, detect that it hangs, end it.

Only ``wait`` and ``close`` wait for the recorder, for a limited time. Every failure of it is recorded in
``Watch.ended``, the reason that the evidence states for missing telemetry.
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

from harness.children import describe_signal, memory_file
from harness.telemetry.source import Gpu, Library
from harness.telemetry.windows import Track

RATE = 10.0
LOADING = 6
"""Opening a library may take this many times as long as a sample: drivers that are not kept loaded start slowly."""
STUCK = 5.0
"""Seconds after which a library call that has not returned counts as hung, and the recorder ends itself."""
SILENT = 10.0
"""Seconds without a line after which the recorder itself counts as hung and is killed."""


@dataclass(frozen=True)
class Window:
    """Telemetry of one GPU around one case. ``samples``: as ``Span.to_json`` returns it, None with a ``reason``."""

    gpu: str
    samples: Mapping[str, Any] | None
    reason: str = ""


class Watch:
    """A recorder process for ``gpus``, which it reads with ``library``; ``rate`` in samples per second.

    ``hardware``: the source's description of the machine, None until it is received. ``ended``: the reason why no more
    samples arrive, None while they do.
    """

    def __init__(
        self, library: Library, gpus: Sequence[Gpu], rate: float = RATE, stuck: float = STUCK, silent: float = SILENT
    ) -> None:
        self.source = library.name
        self.gpus = tuple(gpu.uuid for gpu in gpus)
        self.period = 1 / rate
        self.hardware: Mapping[str, Any] | None = None
        self.ended: str | None = None
        self.lines = 0
        self._silent, self._loading = silent, stuck * LOADING
        self._tracks: dict[str, Track] = {}
        self._last_line_time = time.monotonic()
        self._news = threading.Condition()
        self._output = memory_file("recorder")
        identities = [{"uuid": gpu.uuid, "bus_id": gpu.bus_id} for gpu in gpus]
        command = [sys.executable, "-m", "harness.telemetry.process", "--source", library.source, "--rate", str(rate)]
        command += ["--name", library.name]
        command += ["--gpus", json.dumps(identities), "--stuck", str(stuck), "--loading", str(self._loading)]
        # The variable's own entries first: a start-up module among them is not in sys.path any more.
        path = dict.fromkeys([*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path])
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
                start_new_session=True,
            )
        except OSError as error:
            self.ended = f"the recorder process could not be started: {error}"
            return
        self._listener = threading.Thread(target=self._listen, args=(self._process,), name="telemetry", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int | None:
        """The recorder's process id; None if it could not be started."""
        return self._process.pid if self._process else None

    def window(self, gpu: str, started: float, ended: float) -> Window | None:
        """Return the window of ``gpu`` around a case, from ``started`` to ``ended`` in seconds of ``time.time()``; None
        while the sample after the case has not arrived."""
        with self._news:
            self._check()
            if gpu not in self.gpus:
                return Window(gpu, None, "it was not watched")
            if gpu in self._tracks:
                window = self._tracks[gpu].window(started, ended)
                if window is not None:
                    return Window(gpu, None, window) if isinstance(window, str) else Window(gpu, window)
            if self.ended is not None:
                return Window(gpu, None, self.ended)
            return None

    def whole(self) -> list[Window]:
        """Return the window over all samples so far for each GPU, with the number of repeated samples and the seconds
        per reading."""
        with self._news:
            windows = []
            for gpu in self.gpus:
                track = self._tracks.get(gpu)
                if track is None or not track.whole.readings:
                    windows.append(Window(gpu, None, self.ended or "no sample arrived"))
                else:
                    more = {"repeated": track.repeated, "seconds_per_look": round(track.looking / track.looks, 6)}
                    windows.append(Window(gpu, {**track.whole.to_json(), **more}))
            return windows

    def wait(self, lines: int, seconds: float) -> bool:
        """Wait for more than ``lines`` lines in all, or the end, at most ``seconds``; return whether that happened."""
        with self._news:
            return self._news.wait_for(lambda: self.lines > lines or self.ended is not None, seconds)

    def close(self, seconds: float = 2.0) -> None:
        """End the process by closing its stdin; kill it after ``seconds``. Idempotent."""
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
                return  # the process cannot be killed now, and the thread still needs its output
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # sanity check: it was started with a pipe
        reason = None
        with process.stdout as stream:
            for line in stream:
                with self._news:
                    self._last_line_time = time.monotonic()
                    try:
                        self._take(json.loads(line))
                    except (ValueError, KeyError, TypeError) as error:
                        reason = f"the recorder wrote an invalid line: {type(error).__name__}: {error}"
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
        """End a recorder that has been silent for too long. The caller holds the lock."""
        silent, allowed = (
            time.monotonic() - self._last_line_time,
            self._silent + (0 if self.hardware else self._loading),
        )
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
        """Return how the process ended. Call it after its stream has ended."""
        try:
            status = process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "the recorder process closed its stream"
        how = f"by {describe_signal(-status)}" if status < 0 else f"with status {status}" if status else ""
        lines = (
            os.pread(self._output, 1 << 20, 0).decode("utf-8", "replace").strip().splitlines()
            if self._output >= 0
            else []
        )
        return " ".join(["the recorder process ended", *([how] if how else [])]) + (
            f": {lines[-1][:300]}" if lines else ""
        )
