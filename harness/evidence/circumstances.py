"""Circumstances of a run that are not its options: the harness's own sources, environment variables, arguments.

No record of them names a machine, a user or a folder, since evidence is passed on to other people.
"""

from __future__ import annotations

import getpass
import platform
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from harness import devices
from harness.evidence.environment import commit_of, installed_version, sources_of

PACKAGES = ("harness", "fixtures", "conformance", "reports", "command_line")
"""The packages that determine a verdict, besides the implementation."""

PREFIXES = (
    "GLOO_", "HYPOTHESIS_", "IRIS_", "LD_", "MKL_", "NUMBA_", "OMP_", "PYTEST_", "PYTHON", "PYTORCH_", "TORCH_",
    "TRITON_",
)  # fmt: skip
"""Prefixes of environment variables that torch, Triton, Python or pytest read; each kind of device adds those of its
runtime. The evidence records which of them are set."""

_NAMES = """
    HYPOTHESIS_PROFILE
    LD_LIBRARY_PATH LD_PRELOAD
    MKL_NUM_THREADS OMP_NUM_THREADS OMP_PROC_BIND OMP_SCHEDULE
    NUMBA_CACHE_DIR NUMBA_DISABLE_JIT NUMBA_NUM_THREADS NUMBA_OPT
    PYTEST_ADDOPTS PYTEST_DISABLE_PLUGIN_AUTOLOAD PYTEST_PLUGINS
    PYTHONDEVMODE PYTHONDONTWRITEBYTECODE PYTHONFAULTHANDLER PYTHONHASHSEED PYTHONHOME PYTHONIOENCODING PYTHONMALLOC
    PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONPATH PYTHONPYCACHEPREFIX PYTHONSAFEPATH PYTHONUNBUFFERED PYTHONUTF8
    PYTHONWARNINGS
    PYTORCH_ALLOC_CONF
    TORCH_CPP_LOG_LEVEL TORCH_DISTRIBUTED_DEBUG TORCH_LOGS TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_BLOCKING_WAIT
    TORCH_SHOW_CPP_STACKTRACES
    TRITON_ALWAYS_COMPILE TRITON_CACHE_DIR TRITON_DEBUG TRITON_DEFAULT_FP_FUSION TRITON_DUMP_DIR TRITON_HOME
    TRITON_INTERPRET TRITON_KERNEL_DUMP TRITON_KERNEL_OVERRIDE TRITON_OVERRIDE_DIR TRITON_PRINT_AUTOTUNING
"""
KNOWN = frozenset(_NAMES.split())
"""Variables whose values are recorded; each kind of device adds its own. The value of another variable may be a secret:
it is recorded only if it is a switch ("1", "off")."""

_PER_PROCESS = (
    "IRIS_HARNESS_FORK_SERVER", "IRIS_HARNESS_RUN", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_TESTRUNUID",
    "PYTEST_XDIST_WORKER",
)  # fmt: skip
_PLACES = ("PATH", "DIR", "HOME", "PREFIX", "_PRELOAD")
_SWITCH = re.compile(r"[01]|true|false|on|off|yes|no|", re.IGNORECASE)
_SECRET = re.compile(r"KEY|PASS|AUTH|TOKEN|SECRET|CRED|COOKIE", re.IGNORECASE)
_ASSIGNED = re.compile(rf"([\w.-]*(?:{_SECRET.pattern})[\w.-]*\s*(?:=|:(?!:))).+", re.IGNORECASE | re.DOTALL)
"""A name of a secret with its value, ``--token=abc`` or ``Authorization: abc``; ``::`` of a node id does not count."""

_URL = re.compile(r"[A-Za-z][\w+.-]*://\S+")
_PLACE = re.compile(r"""(?:(?<=^-\w)|(?<![\w.~%*\])}-]))(?:/|~|\.\./)[^:,;'"]*""")
"""A path that does not begin in the current folder, also directly after an option of one letter (``-c/home``)."""

_SET, _PATH, _LONGEST = "<set>", "<path>", 300


def harness_state() -> dict[str, Any]:
    """Return the version of the harness, and for each of its packages the commit, with "+changes" if it was edited, and
    the hash of its sources."""
    return {
        "version": installed_version("iris-harness"),
        "packages": {name: {"commit": commit_of(name), "sha256": sources_of(name)} for name in PACKAGES},
    }


def relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environment`` that can change a run, by name.

    Values of ``KNOWN`` variables and of switches are kept, with paths replaced; other values are ``<set>``.
    """
    return {
        name: _plain_value(name, value)
        for name, value in sorted(environment.items())
        if name.startswith((*PREFIXES, *devices.of_all("variable_prefixes"))) and name not in _PER_PROCESS
    }


def plain_arguments(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return command-line arguments with secrets, URLs, paths outside the current folder, and names of user and host
    replaced. A secret is the value of an option or setting whose name suggests one."""
    plain: list[str] = []
    before = ""
    for word in arguments:
        is_value = before.startswith("-") and "=" not in before and _SECRET.search(before)
        plain.append(_SET if is_value and not word.startswith("-") else _plain_argument(word))
        before = word
    return tuple(plain)


def _known(name: str) -> bool:
    return name in KNOWN or name in devices.of_all("variables")


def _plain_argument(word: str) -> str:
    return _nameless(_PLACE.sub(_PATH, _URL.sub("<url>", _ASSIGNED.sub(rf"\1{_SET}", word))))


def _plain_value(name: str, value: str) -> str:
    if _SECRET.search(name) or (not _known(name) and not _SWITCH.fullmatch(value)):
        return _SET if value else ""
    if name == "PYTEST_ADDOPTS":
        words = plain_arguments(_words(value))
        return " ".join(f"'{word}'" if " " in word else word for word in words)[:_LONGEST]
    if name.endswith(_PLACES):
        return re.sub(r"[^:;,\s]+", _PATH, value)[:_LONGEST]
    return _nameless(re.sub(r"[^\s:;,=]*[/~][^\s:;,=]*", _PATH, _URL.sub("<url>", value)))[:_LONGEST]


def _words(text: str) -> list[str]:
    """Return the arguments in a text, as pytest splits it."""
    try:
        return shlex.split(text)
    except ValueError:  # an open quote: pytest refuses it
        return text.split()


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
