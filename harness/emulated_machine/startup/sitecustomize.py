"""Start-up module of Python processes below ``iris-harness emulate``, and of those that inherit the emulated device.

Python imports the first ``sitecustomize`` of its path. This one switches the emulated machine or device on,
leaves the path as the program expects it, and then runs the ``sitecustomize`` that it displaced, if there is one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
OLDEST = (3, 10)


def _start() -> None:
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE]
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # last: the program's own modules come first
    try:
        _switch_on()
    except Exception as error:  # noqa: BLE001 - Python goes on after it, and the program would run without GPUs
        sys.stderr.write(f"iris-harness emulate: {' '.join(str(error).split()) or type(error).__name__}\n")
        sys.stderr.flush()
        os._exit(2)


def _switch_on() -> None:
    if sys.version_info < OLDEST:
        raise RuntimeError(
            f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}, and the emulated machine needs"
            f" {OLDEST[0]}.{OLDEST[1]} or newer: run the program with the python that iris-harness is installed in"
        )
    _refuse_namesake()
    from harness.emulated_machine import device, hook, settings

    known = settings.current()
    if known is not None:
        hook.install(known)  # the machine's GPUs are emulated devices already
    else:
        device.install()


def _refuse_namesake() -> None:
    """Raise RuntimeError if the program has a module ``harness`` of its own, which the machine's would hide."""
    ours = ROOT / "harness" / "__init__.py"
    spec = importlib.machinery.PathFinder.find_spec("harness", [_program_folder(sys.orig_argv), *sys.path])
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() != ours:
        raise RuntimeError(
            f"{spec.origin} and the emulated machine's {ours} are both the module 'harness', and a process can have"
            " only one: rename the program's, or run it from a folder that does not have it"
        )


def _program_folder(words: list[str]) -> str:
    """Return the folder that Python puts in front of the path for a command: the script's, or the current one.

    Example: ``["python", "-X", "utf8", "tools/prog.py"]`` gives ``tools``.
    """
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif not word.startswith("-"):
            return str(Path(word).resolve().parent)
        elif not word.startswith("--") and set(word) & set("cm"):
            break
    return os.getcwd()


def _run_displaced() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if "IRIS_HARNESS_EMULATE" in os.environ or "IRIS_HARNESS_DEVICE" in os.environ:
    _start()
    _run_displaced()
