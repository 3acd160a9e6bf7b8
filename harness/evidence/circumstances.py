"""What could change a run without being an option of it: the harness's own sources, environment variables, arguments.

Nothing here names a machine, a user or a folder: evidence is given to others.
"""

from __future__ import annotations

import getpass
import platform
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from harness.evidence.environment import commit_of, installed_version, sources_of

PACKAGES = ("harness", "fixtures", "conformance", "reports")
"""The packages that decide a verdict, beside the implementation."""

PREFIXES = (
    "AMD_", "CUDA_", "GLOO_", "GPU_", "HIP_", "HSA_", "HYPOTHESIS_", "IRIS_", "LD_", "MKL_", "NCCL_", "NUMBA_", "OMP_",
    "PYTEST_", "PYTHON", "PYTORCH_", "RCCL_", "ROCM_", "ROCR_", "TORCH_", "TRITON_",
)  # fmt: skip
"""Environment variables that torch, Triton, the GPU runtimes, Python or pytest read. That one is set is recorded."""

_NAMES = """
    AMD_LOG_LEVEL AMD_SERIALIZE_COPY AMD_SERIALIZE_KERNEL
    CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES
    GPU_DEVICE_ORDINAL GPU_MAX_HW_QUEUES HIP_LAUNCH_BLOCKING HIP_VISIBLE_DEVICES
    HSA_ENABLE_IPC_MODE_LEGACY HSA_ENABLE_PEER_SDMA HSA_ENABLE_SDMA HSA_FORCE_FINE_GRAIN_PCIE HSA_NO_SCRATCH_RECLAIM
    HSA_OVERRIDE_GFX_VERSION HSA_XNACK
    HYPOTHESIS_PROFILE
    LD_LIBRARY_PATH LD_PRELOAD
    MKL_NUM_THREADS OMP_NUM_THREADS OMP_PROC_BIND OMP_SCHEDULE
    NCCL_ALGO NCCL_ASYNC_ERROR_HANDLING NCCL_BLOCKING_WAIT NCCL_BUFFSIZE NCCL_CUMEM_ENABLE NCCL_DEBUG NCCL_IB_DISABLE
    NCCL_LAUNCH_MODE NCCL_MAX_NCHANNELS NCCL_MIN_NCHANNELS NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_PROTO
    NCCL_SHM_DISABLE RCCL_MSCCL_ENABLE
    NUMBA_CACHE_DIR NUMBA_DISABLE_JIT NUMBA_NUM_THREADS NUMBA_OPT
    PYTEST_ADDOPTS PYTEST_DISABLE_PLUGIN_AUTOLOAD PYTEST_PLUGINS
    PYTHONDEVMODE PYTHONDONTWRITEBYTECODE PYTHONFAULTHANDLER PYTHONHASHSEED PYTHONHOME PYTHONIOENCODING PYTHONMALLOC
    PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONPATH PYTHONPYCACHEPREFIX PYTHONSAFEPATH PYTHONUNBUFFERED PYTHONUTF8
    PYTHONWARNINGS
    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF PYTORCH_NVML_BASED_CUDA_CHECK
    ROCM_HOME ROCM_PATH ROCR_VISIBLE_DEVICES
    TORCH_CPP_LOG_LEVEL TORCH_CUDA_ARCH_LIST TORCH_DISTRIBUTED_DEBUG TORCH_LOGS TORCH_NCCL_ASYNC_ERROR_HANDLING
    TORCH_NCCL_BLOCKING_WAIT TORCH_SHOW_CPP_STACKTRACES TORCH_USE_CUDA_DSA
    TRITON_ALWAYS_COMPILE TRITON_CACHE_DIR TRITON_DEBUG TRITON_DEFAULT_FP_FUSION TRITON_DUMP_DIR TRITON_HOME
    TRITON_INTERPRET TRITON_KERNEL_DUMP TRITON_KERNEL_OVERRIDE TRITON_OVERRIDE_DIR TRITON_PRINT_AUTOTUNING
"""
KNOWN = frozenset(_NAMES.split())
"""Those whose values are recorded. Of others only a switch ("1", "off") is, since a value may be a secret."""

_PER_PROCESS = ("IRIS_HARNESS_RUN", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER")
_PLACES = ("PATH", "DIR", "HOME", "PREFIX", "_PRELOAD")
_SWITCH = re.compile(r"[01]|true|false|on|off|yes|no|", re.IGNORECASE)
_SECRET = re.compile(r"KEY|PASS|AUTH|TOKEN|SECRET|CRED|COOKIE", re.IGNORECASE)
_ASSIGNED = re.compile(rf"([\w.-]*(?:{_SECRET.pattern})[\w.-]*\s*(?:=|:(?!:))).+", re.IGNORECASE | re.DOTALL)
"""A name of a secret with its value, ``--token=abc`` or ``Authorization: abc``; ``::`` of a node id is no sign."""

_URL = re.compile(r"[A-Za-z][\w+.-]*://\S+")
_PLACE = re.compile(r"""(?:(?<=^-\w)|(?<![\w.~%*\])}-]))(?:/|~|\.\./)[^:,;'"]*""")
"""A path that does not begin in the current folder, also right behind an option of one letter (``-c/home``)."""

_SET, _PATH, _LONGEST = "<set>", "<path>", 300


def harness_state() -> dict[str, Any]:
    """Version of the harness; commit, with "+changes" if it was edited, and hash of the sources of its packages."""
    return {
        "version": installed_version("iris-harness"),
        "packages": {name: {"commit": commit_of(name), "sha256": sources_of(name)} for name in PACKAGES},
    }


def relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environment`` that can change a run, by name, with the values of ``KNOWN`` ones and of
    switches; paths in values are replaced, other values are ``<set>``."""
    return {
        name: _plain_value(name, value)
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) and name not in _PER_PROCESS
    }


def plain_arguments(arguments: Iterable[str]) -> tuple[str, ...]:
    """Command-line arguments in which secrets, URLs, paths outside the current folder, and names of user and host are
    replaced. A secret is what an option or a setting named like one has as its value."""
    found: list[str] = []
    before = ""
    for word in arguments:
        is_value = before.startswith("-") and "=" not in before and _SECRET.search(before)
        found.append(_SET if is_value and not word.startswith("-") else _plain_argument(word))
        before = word
    return tuple(found)


def _plain_argument(word: str) -> str:
    return _nameless(_PLACE.sub(_PATH, _URL.sub("<url>", _ASSIGNED.sub(rf"\1{_SET}", word))))


def _plain_value(name: str, value: str) -> str:
    if _SECRET.search(name) or (name not in KNOWN and not _SWITCH.fullmatch(value)):
        return _SET if value else ""
    if name == "PYTEST_ADDOPTS":
        words = plain_arguments(_words(value))
        return " ".join(f"'{word}'" if " " in word else word for word in words)[:_LONGEST]
    if name.endswith(_PLACES):
        return re.sub(r"[^:;,\s]+", _PATH, value)[:_LONGEST]
    return _nameless(re.sub(r"[^\s:;,=]*[/~][^\s:;,=]*", _PATH, _URL.sub("<url>", value)))[:_LONGEST]


def _words(text: str) -> list[str]:
    """The arguments in a text, as pytest splits it."""
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
