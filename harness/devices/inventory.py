"""The GPUs that this process may use, found without starting a GPU context in it.

gpus = inventory.visible("cuda")        # UsageError: no driver, no library, a CPU build of torch, no GPU
inventory.check(gpus, ranks=8)          # UsageError: too few, of several architectures, without peer access
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.devices.probe import MARK
from harness.errors import UsageError

LIMIT = 180.0
"""Seconds for importing torch and asking the driver; it takes a few."""

MASKS = {"cuda": ("CUDA_VISIBLE_DEVICES",), "rocm": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")}
"""The variables that choose GPUs; the first that is set counts. ROCR_VISIBLE_DEVICES is applied before them."""


@dataclass(frozen=True)
class GpuInfo:
    """A GPU. ``index`` counts within the caller's visible devices; ``arch`` as in gfx942 or sm_90; ``memory`` in bytes.

    ``uuid`` as the driver's tools write it (GPU-..., or MIG-... for a part of one); ``bus_id`` as in 0000:1b:00.0;
    ``peers``: indices of the GPUs whose memory it can access.
    """

    index: int
    name: str
    arch: str
    memory: int
    uuid: str
    bus_id: str
    peers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.index} ({self.name}, {self.arch}, {self.bus_id})"


_adopted: dict[str, tuple[GpuInfo, ...]] = {}


def visible(device: str) -> tuple[GpuInfo, ...]:
    """The GPUs of ``device`` ("cuda" or "rocm"), in the order of their indices; never empty.

    Asked once per process, in a child process, in bounded time. Raises UsageError, in one line, that says what is
    missing and what to do.
    """
    if device in _adopted:
        return _adopted[device]
    facts = _facts()
    if reason := (_missing_cuda if device == "cuda" else _missing_rocm)(facts):
        raise UsageError(reason)
    entries = mask_entries(device)
    return tuple(_info(plain, entries) for plain in facts["gpus"])


def adopt(device: str, plain: Sequence[Mapping[str, Any]]) -> None:
    """Take over what another process with the same visible devices found, as ``to_plain`` gives it."""
    _adopted[device] = tuple(GpuInfo(**{**entry, "peers": tuple(entry["peers"])}) for entry in plain)


def to_plain(gpus: Sequence[GpuInfo]) -> list[dict[str, Any]]:
    """The same as lists, dicts, numbers and strings."""
    return [{**asdict(gpu), "peers": list(gpu.peers)} for gpu in gpus]


def unfit(device: str, arch: str) -> str | None:
    """Why no GPU of that arch can be used as ``device``, and what to do; None when there is one."""
    try:
        gpus = visible(device)
    except UsageError as error:
        return str(error)
    if arch in {gpu.arch for gpu in gpus}:
        return None
    found = ", ".join(sorted({f"{gpu.name} ({gpu.arch})" for gpu in gpus}))
    return f"the visible GPUs are {found}, not {arch}: name another --arch, or choose GPUs with {MASKS[device][0]}"


def check(gpus: Sequence[GpuInfo], ranks: int, ranks_per_gpu: int = 1) -> None:
    """Raises UsageError, in one line, where ``ranks`` ranks cannot run on these GPUs, up to ``ranks_per_gpu`` on each.

    Which of them a run gets is not known ahead, so all must be of one architecture, and (where it takes several) reach
    each other's memory.
    """
    variable = MASKS["rocm" if gpus and gpus[0].arch.startswith("gfx") else "cuda"][0]
    needed = gpus_for(ranks, ranks_per_gpu)
    if needed > len(gpus):
        fitting = f"--ranks-per-gpu {gpus_for(ranks, max(1, len(gpus)))}"
        how, hint = f"{needed} GPUs with {ranks_per_gpu} on each", f", or use {fitting}"
        if ranks_per_gpu == 1:
            how, hint = "as many GPUs", f" (certify and pytest can let ranks share a GPU: {fitting})"
        raise UsageError(
            f"{ranks} ranks need {how} and {len(gpus)} can be seen: use fewer --ranks, or widen {variable}{hint}"
        )
    if len({gpu.arch for gpu in gpus}) > 1:
        raise UsageError(
            f"the GPUs are of several architectures: {', '.join(map(str, gpus))}: choose one kind with {variable}"
        )
    for gpu in gpus if needed > 1 else ():
        for other in gpus:
            if other.index != gpu.index and other.index not in gpu.peers:
                raise UsageError(
                    f"GPU {gpu} has no peer access to GPU {other}: choose GPUs that have it with {variable}"
                )


def gpus_for(ranks: int, ranks_per_gpu: int) -> int:
    """How many GPUs so many ranks take."""
    return -(-ranks // ranks_per_gpu)


def mask_entries(device: str, caller: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """What the caller's environment makes visible, in order: indices, UUIDs or MIG ids; None where nothing is set."""
    for variable in MASKS[device]:
        if (value := caller.get(variable)) is not None:
            return tuple(entry.strip() for entry in value.split(",") if entry.strip())
    return None


def _info(plain: Mapping[str, Any], entries: tuple[str, ...] | None) -> GpuInfo:
    gpu = GpuInfo(**{**plain, "peers": tuple(plain["peers"])})
    if entries and gpu.index < len(entries) and entries[gpu.index].startswith("MIG-"):
        return GpuInfo(**{**asdict(gpu), "uuid": entries[gpu.index]})  # the UUID of the part, not of the whole GPU
    return gpu


@functools.cache
def _facts() -> dict[str, Any]:
    """``probe.facts`` of a child process, asked once; only ``broken``, with the reason, where it did not answer."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from harness.devices import probe; probe.main()"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"broken": f"asking torch for GPUs took longer than {LIMIT:g} s: check the driver"}
    return read_answer(done.stdout, done.stderr, done.returncode)


def read_answer(stdout: bytes, stderr: bytes, status: int) -> dict[str, Any]:
    """The facts among whatever else was printed; only ``broken`` where there are none."""
    _, mark, rest = stdout.decode("utf-8", "replace").rpartition(MARK)
    if not mark:
        said = " ".join(stderr.decode("utf-8", "replace").strip().splitlines()[-1:])
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return {"broken": f"asking torch for GPUs ended a process with {how}: {said or 'it said nothing'}"}
    found: dict[str, Any] = json.JSONDecoder().raw_decode(rest)[0]
    return found


def _missing_cuda(facts: Mapping[str, Any]) -> str | None:
    if reason := _missing_build(facts, "cuda", "CUDA"):
        return reason
    if facts["gpus"]:
        return None
    if not facts["library"] and not facts["driver"]:
        return "there is no NVIDIA driver: install it, or run where there is a GPU"
    if not facts["library"]:
        return (
            "the NVIDIA driver is there but not its library libcuda.so.1: start the container with --gpus all, or"
            " install the driver's libraries"
        )
    if not facts["driver"]:
        return "libcuda.so.1 is there but no NVIDIA driver: start the container with --gpus all, or load the driver"
    return _none_visible(facts, "cuda", "NVIDIA", "nvidia-smi")


def _missing_rocm(facts: Mapping[str, Any]) -> str | None:
    if reason := _missing_build(facts, "hip", "ROCm"):
        return reason
    if facts["gpus"]:
        return None
    if not facts["kfd"]:
        return (
            "there is no AMD driver (/dev/kfd): load amdgpu, or start the container with --device /dev/kfd"
            " --device /dev/dri"
        )
    if not facts["permission"]:
        return "/dev/kfd may not be opened: add the user to its group (render), or the container with --group-add"
    return _none_visible(facts, "rocm", "AMD", "rocminfo")


def _missing_build(facts: Mapping[str, Any], key: str, name: str) -> str | None:
    if "broken" in facts:
        return str(facts["broken"])
    if facts["failed"]:
        return f"torch does not import ({facts['failed']}): install its {name} build again"
    if not facts["torch"]:
        return f"the package torch is not installed: install its {name} build"
    if not facts[key]:
        return f"torch {facts['torch']} is not a {name} build: install torch from the {name} wheel index"
    return None


def _none_visible(facts: Mapping[str, Any], device: str, vendor: str, tool: str) -> str:
    names = (*(("ROCR_VISIBLE_DEVICES",) if device == "rocm" else ()), *MASKS[device])
    masks = [f"{name}={os.environ[name]!r}" for name in names if name in os.environ]
    if masks:
        return f"no {vendor} GPU is visible with {' and '.join(masks)}: name GPUs that are there, or unset it"
    reason = f" ({facts['error']})" if facts["error"] else ""
    return f"no {vendor} GPU is visible{reason}: see what {tool} says"
