"""The smoke session, over the supported versions of Python and Triton.

    nox                          every Triton on every Python
    nox -s smoke-3.12            every Triton on Python 3.12
    nox -s smoke-3.11 -- 3.6     one Triton on one Python

The session imports every package, runs a kernel on the emulated device, and runs the fast tests of ``tests/package``. A
Python that is not installed is skipped, and nox reports it by name. The Tritons of one Python share an environment:
PyTorch takes most of its time and space. docs/start/install.md names the package index of PyTorch's CPU build, which
``iris-harness emulate`` needs.
"""

from pathlib import Path

import nox

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TRITONS = ("3.6", "3.7", "3.8", "3.9")
LACKING = (("3.10", "3.9"),)
"""Pairs of a Python and a Triton that has no wheel for it."""

PACKAGES = (
    "command_line",
    "conformance",
    "fixtures",
    "harness",
    "iris_under_test",
    "mutants",
    "reports",
    "certificates",
    "history",
)

nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"


@nox.session(python=PYTHONS)
def smoke(session: nox.Session) -> None:
    """Imports, a kernel on the emulated device, and the fast tests of the package, with each Triton."""
    pins = Path(session.create_tmp()) / "constraints.txt"
    lines = Path("constraints-ci.txt").read_text().splitlines(keepends=True)
    pins.write_text("".join(line for line in lines if not line.startswith("triton==")))
    for triton in session.posargs or TRITONS:
        if (session.python, triton) in LACKING:
            session.log(f"Triton {triton} has no wheel for Python {session.python}: left out")
            continue
        session.log(f"Triton {triton}")
        session.install("-c", str(pins), f"triton=={triton}.*", "-e", ".[dev]")
        session.run("python", "-c", f"import {', '.join(PACKAGES)}")
        session.run("iris-harness", "emulate", "--mode", "check", "--", "python", "examples/softmax.py")
        session.run("python", "-m", "pytest", "tests/package", "-m", "not slow and not nightly", "-q")
