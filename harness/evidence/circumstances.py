"""What could change a run without being an option of it: the harness's own sources, environment variables, arguments.

Nothing here names a machine, a user or a folder: evidence is given to others.
"""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

from harness.evidence.environment import commit_of, installed_version, sources_of

PACKAGES = ("harness", "fixtures", "conformance", "reports")
"""The packages that decide a verdict, beside the implementation."""

PREFIXES = (
    "AMD_", "CUDA_", "GLOO_", "HIP_", "HSA_", "HYPOTHESIS_", "IRIS_", "LD_", "NCCL_", "NUMBA_", "OMP_", "PYTEST_",
    "PYTHON", "PYTORCH_", "RCCL_", "ROCM_", "ROCR_", "TORCH_", "TRITON_",
)  # fmt: skip
"""Environment variables that torch, Triton, the GPU runtimes, Python or pytest read."""

_PER_PROCESS = ("IRIS_HARNESS_RUN", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER")
_PLACES = ("PATH", "DIR", "HOME", "ROOT", "FILE", "CACHE", "PREFIX", "_PRELOAD")
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY")
_PATH, _LONGEST = "<path>", 300


def harness_state() -> dict[str, Any]:
    """Version of the harness; commit, with "+changes" if it was edited, and hash of the sources of its packages."""
    return {
        "version": installed_version("iris-harness"),
        "packages": {name: {"commit": commit_of(name), "sha256": sources_of(name)} for name in PACKAGES},
    }


def relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environment`` that can change a run, by name; paths and secrets in values are replaced."""
    return {
        name: _plain_value(name, value)
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) and name not in _PER_PROCESS
    }


def plain_arguments(arguments: Iterable[str]) -> tuple[str, ...]:
    """Command-line arguments in which absolute paths, and names of user and host, are replaced."""
    return tuple(_nameless(re.sub(r"(?:(?<=^)|(?<=[=:,\s]))(?:/|~|\.\./)[^\s:,]*", _PATH, word)) for word in arguments)


def _plain_value(name: str, value: str) -> str:
    if any(word in name for word in _SECRETS):
        return "<set>" if value else ""
    if name.endswith(_PLACES):
        return re.sub(r"[^:;,\s]+", _PATH, value)[:_LONGEST]
    return _nameless(re.sub(r"[^\s:;,=]*[/~][^\s:;,=]*", _PATH, value))[:_LONGEST]


def _nameless(text: str) -> str:
    for name, shown in ((platform.node(), "<host>"), (_user(), "<user>")):
        if len(name) > 1:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", shown, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return ""
