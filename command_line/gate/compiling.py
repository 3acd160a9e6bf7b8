"""Compiles calls of the catalogue with a copy of the library, in a child process: a process holds one copy only.

python -m command_line.gate.compiling FOLDER IMPLEMENTATION LISTINGS RESULT ARCH,ARCH CALL...
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line.isa.compiled import compile_all
from command_line.suite.process import Suite, environment_of
from command_line.suite.run import StopRequest
from harness.errors import HarnessError
from harness.files import write_whole

RESULT, LOG = "compiled.json", "compile.log"


@dataclass(frozen=True)
class Compiled:
    """Result of compiling one copy of the library: by target, figures of the kernels, sentences about broken contracts,
    and errors, each by call. ``late``: the time was too short."""

    figures: Mapping[str, Mapping[str, Sequence[Any]]]
    broken: Mapping[str, Mapping[str, Sequence[str]]]
    errors: Mapping[str, Mapping[str, str]]
    late: bool = False


def compiled(
    folder: Path,
    implementation: str,
    archs: Sequence[str],
    calls: Sequence[str],
    output: Path,
    seconds: float,
    stop: StopRequest,
) -> Compiled:
    """Return what the package ``implementation`` in ``folder`` compiles to, within ``seconds``. ``output`` gets the
    listings and the log. ``stop``: a signal ends it at once."""
    output.mkdir(parents=True, exist_ok=True)
    result = output / RESULT
    result.unlink(missing_ok=True)
    environment = environment_of(folder)
    command = [
        sys.executable,
        "-m",
        "command_line.gate.compiling",
        str(folder),
        implementation,
        str(output),
        str(result),
        ",".join(archs),
    ]
    end = time.monotonic() + seconds
    with Suite([*command, *calls], output / LOG, environment) as child:
        while child.poll() is None and stop.signal is None and time.monotonic() < end:
            time.sleep(0.1)
        status = child.poll()
    if not result.is_file():
        tail = [line for line in child.tail if line.strip()]
        late = status is None
        reason = "" if late else (tail[-1] if tail else f"exit status {status}")
        return Compiled({}, {}, {} if late else {arch: dict.fromkeys(calls, reason) for arch in archs}, late)
    plain = json.loads(result.read_text(encoding="utf-8"))
    return Compiled(plain["figures"], plain["broken"], plain["errors"])


def main(arguments: Sequence[str]) -> None:
    """Compile, and write the result; see the module."""
    folder, implementation, output, result, archs, *calls = arguments
    sys.path.insert(0, folder)  # before the current folder, which Python 3.10 puts there
    spec = importlib.util.find_spec(implementation)
    if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(folder):
        raise HarnessError(f"{implementation} would be imported from {spec and spec.origin}, not from {folder}")
    tasks = [(arch, call) for arch in archs.split(",") for call in calls]
    results = compile_all(tasks, implementation, Path(output), lambda done: None)
    tables: dict[str, dict[str, dict[str, Any]]] = {"figures": {}, "broken": {}, "errors": {}}
    for one in results:
        if one.error:
            tables["errors"].setdefault(one.arch, {})[one.call] = one.error
        else:
            tables["figures"].setdefault(one.arch, {})[one.call] = one.kernels
            tables["broken"].setdefault(one.arch, {})[one.call] = one.broken
    write_whole(Path(result), json.dumps(tables))


if __name__ == "__main__":
    main(sys.argv[1:])
