"""Python programs that tests run, as forks of one process that has imported the packages that the project needs.

``run`` replaces ``subprocess.run([sys.executable, ...])`` where a test is about what a program does, and not about what
an interpreter imports, how it starts or how it is killed. The process has nothing of this project but ``harness``, so a
program imports its own ``conformance``, ``fixtures`` or library, from PYTHONPATH or its folder. Where a fork would
differ from a new interpreter, as the fork server decides, ``run`` starts an interpreter.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import children
from harness.ranks import fork_server, forking, network

VARIABLE = "IRIS_HARNESS_TESTS_FORK_SERVER"
"""Environment variable of the tests' own fork server: that of rank groups has fewer modules."""

_PRELOAD = (
    "torch", "torch.distributed.launcher.api", "triton", "triton.experimental.gluon", "numba", "yaml", "jsonschema",
    "click", "cryptography.hazmat.primitives.asymmetric.ed25519", "jinja2", "rich.console", "scipy.stats",
    "msgpack", "harness.emulator.driver", "harness.evidence", "harness.ranks", f"{__name__}:import_pytest",
)  # fmt: skip

_OF_PROGRAMS = frozenset((
    VARIABLE, "FAKE", "FAKE_GPUS", "HEAP_FILES", "IRIS_CCL_TUNING", "OUTSIDER_BUG", "PLANTED", "PYTEST_ADDOPTS",
    "PYTHONDONTWRITEBYTECODE",
))  # fmt: skip
"""Variables that only the programs read, or ``be`` for them: no module of the process has read them."""


def offered() -> fork_server.ForkServer | None:
    """Return a new fork server for this session's programs; None if a session around this one has it."""
    return None if VARIABLE in os.environ else fork_server.ForkServer(_PRELOAD, {}, VARIABLE)


def import_pytest() -> None:
    """Import pytest, its plugins and Hypothesis: in a session, since pytest warns of plugins that it does not import
    itself."""
    import pytest

    shown = os.dup(1)
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
        test = Path(folder) / "test_imports.py"
        test.write_text(
            "import hypothesis, hypothesis.strategies, hypothesis.database, xdist.dsession, xdist.workermanage"
        )
        pytest.main([str(test), "-p", "no:cacheprovider", "--rootdir", folder, "-c", os.devnull])
        os.dup2(shown, 1)
    os.close(shown)


def run(
    command: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    check: bool = False,
    shared: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``subprocess.run`` does, with its text captured; ``command`` begins with ``sys.executable``.

    Its standard input is empty. ``shared=False``: a new interpreter.
    """
    assert command[0] == sys.executable, command
    environment = dict(os.environ if env is None else env)
    forked = _forked(list(command[1:]), str(cwd or os.getcwd()), environment, timeout) if shared else None
    done = forked or _interpreted(command, cwd, environment, timeout)
    if check:
        done.check_returncode()
    return done


def _interpreted(
    command: Sequence[str], folder: Path | str | None, environment: Mapping[str, str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        # Python leaves what was captured before as bytes.
        texts = [text.decode() if isinstance(text, bytes) else text for text in (expired.stdout, expired.stderr)]
        raise subprocess.TimeoutExpired(expired.cmd, expired.timeout, *texts) from None


def usable(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the address of the server that can fork a program with these variables, and ""; or "" and the reason."""
    variables = {name: value for name, value in network.inherited(environment).items() if name not in _OF_PROGRAMS}
    variables |= {name: os.environ[name] for name in _OF_PROGRAMS - {VARIABLE} if name in os.environ}  # the server's
    return forking.usable(variables, VARIABLE)


def _forked(
    words: list[str], folder: str, environment: dict[str, str], timeout: float | None
) -> subprocess.CompletedProcess[str] | None:
    """Run the program in a fork of the server; None if it would differ from one in a new interpreter."""
    address, _ = usable(environment)
    if not address:
        return None
    first = {"-m": folder, "-c": ""}.get(words[0], str(Path(folder, words[0]).parent))
    given = [str(Path(folder, entry)) for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    files = [children.memory_file("stdout"), children.memory_file("stderr")]
    try:
        path = [first, *given, *_installed()]
        process = forking.Forked(address, f"{__name__}:be", words, environment, files, path, folder)
    except OSError:  # the server has ended
        for file in files:
            os.close(file)
        return None
    try:
        if not process.begun():
            return None
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise subprocess.TimeoutExpired([sys.executable, *words], timeout or 0.0, *_texts(files)) from None
        return subprocess.CompletedProcess([sys.executable, *words], status, *_texts(files))
    finally:
        process.close()
        for file in files:
            os.close(file)


def _texts(files: Sequence[int]) -> tuple[str, str]:
    out, err = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in files)
    return out, err


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return the search path of a new interpreter behind the program's folder and PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import json, sys; print(json.dumps(sys.path[1:]))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return tuple(json.loads(done.stdout))


def be(descriptors: Sequence[int], *words: str) -> None:
    """Be ``python WORDS``, as the body of a forked process."""
    kind, rest = words[0], list(words[1:])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if (xdist := sys.modules.get("xdist.plugin")) is not None:
        xdist._sys_path[:] = sys.path  # a copy made at its import: where xdist's own processes look for modules
    try:
        if kind == "-m":
            sys.argv[:] = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.argv[:] = ["-c", *rest[1:]]
            main: Any = types.ModuleType("__main__")
            sys.modules["__main__"] = main
            exec(compile(rest[0], "<string>", "exec"), main.__dict__)
        else:
            assert not kind.startswith("-"), f"{kind}: start an interpreter for its options"
            sys.argv[:] = [kind, *rest]
            runpy.run_path(kind, run_name="__main__")
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
