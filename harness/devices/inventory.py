"""The GPUs that this process may use, found without starting a GPU context in it.

gpus = inventory.visible("cuda")        # UsageError: no driver, no library, a CPU build of torch, no GPU
inventory.check(gpus, ranks=8)          # UsageError: too few GPUs, several architectures, no peer access
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.devices.gpu_kind import GpuInfo, GpuKind
from harness.devices.probe import MARK
from harness.devices.table import gpu_kind
from harness.errors import UsageError

LIMIT = 180.0
"""Seconds for importing torch and querying the driver; it takes a few."""

_adopted: dict[str, tuple[GpuInfo, ...]] = {}


def visible(device: str) -> tuple[GpuInfo, ...]:
    """Return the GPUs of the kind ``device``, in the order of their indices; never empty.

    Queried once per process, in a child process, within LIMIT seconds. Raises UsageError, in one line, that names what
    is missing and what to do.
    """
    if device in _adopted:
        return _adopted[device]
    kind, facts = gpu_kind(device), _facts()
    plain_gpus = [plain for plain in facts.get("gpus", ()) if plain["device"] == device]
    if reason := _missing_build(kind, facts):
        raise UsageError(reason)
    if not plain_gpus:
        raise UsageError(kind.missing_driver(facts) or _none_visible(kind, facts))
    entries = kind.mask_entries()
    return tuple(_info(kind, plain, entries) for plain in plain_gpus)


def adopt(device: str, plain: Sequence[Mapping[str, Any]]) -> None:
    """Use the GPUs that another process with the same visible devices found; ``plain``: as ``to_plain`` returns
    them."""
    _adopted[device] = tuple(GpuInfo(**{**entry, "peers": tuple(entry["peers"])}) for entry in plain)


def to_plain(gpus: Sequence[GpuInfo]) -> list[dict[str, Any]]:
    """Return ``gpus`` as plain data for ``adopt``: lists, dicts, numbers and strings."""
    return [{**asdict(gpu), "peers": list(gpu.peers)} for gpu in gpus]


def unfit(device: str, arch: str) -> str | None:
    """Return the reason why no GPU of that arch can be used as ``device``, and what to do; None if there is one."""
    try:
        gpus = visible(device)
    except UsageError as error:
        return str(error)
    if arch in {gpu.arch for gpu in gpus}:
        return None
    names = ", ".join(sorted({f"{gpu.name} ({gpu.arch})" for gpu in gpus}))
    variable = gpu_kind(device).masks[0]
    return f"the visible GPUs are {names}, not {arch}: name another --arch, or choose GPUs with {variable}"


def check(gpus: Sequence[GpuInfo], ranks: int, ranks_per_gpu: int = 1) -> None:
    """Check that ``ranks`` ranks can run on these GPUs, up to ``ranks_per_gpu`` on each; UsageError, in one line.

    ``gpus``: GPUs of one kind, as ``visible`` returns them. Which of them a run leases is not known in advance, so all
    must be of one architecture and, if the run needs several, have access to each other's memory.
    """
    variable = gpu_kind(gpus[0].device).masks[0]
    needed = gpus_for(ranks, ranks_per_gpu)
    if needed > len(gpus):
        fitting = f"--ranks-per-gpu {gpus_for(ranks, max(1, len(gpus)))}"
        how, hint = f"{needed} GPUs with {ranks_per_gpu} on each", f", or use {fitting}"
        if ranks_per_gpu == 1:
            how, hint = "as many GPUs", f" (certify and pytest can let ranks share a GPU: {fitting})"
        raise UsageError(
            f"{ranks} ranks need {how} and {len(gpus)} are visible: use fewer --ranks, or name more GPUs in"
            f" {variable}{hint}"
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
    """Return the number of GPUs for ``ranks`` ranks with ``ranks_per_gpu`` on each."""
    return -(-ranks // ranks_per_gpu)


def _info(kind: GpuKind, plain: Mapping[str, Any], entries: tuple[str, ...] | None) -> GpuInfo:
    index, uuid = plain["index"], plain["uuid"]
    if entries and index < len(entries):
        uuid = kind.uuid_of(uuid, entries[index])
    return GpuInfo(**{**plain, "uuid": uuid, "peers": tuple(plain["peers"])})


@functools.cache
def _facts() -> dict[str, Any]:
    """Return ``probe.facts`` of a child process, queried once; only ``broken``, with the reason, if it fails."""
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
        return {"broken": f"torch's query for GPUs took longer than {LIMIT:g} s: check the driver"}
    return read_answer(done.stdout, done.stderr, done.returncode)


def read_answer(stdout: bytes, stderr: bytes, status: int) -> dict[str, Any]:
    """Return the facts in the output of the child process; only ``broken``, with the reason, if it has none."""
    _, mark, rest = stdout.decode("utf-8", "replace").rpartition(MARK)
    if not mark:
        message = " ".join(stderr.decode("utf-8", "replace").strip().splitlines()[-1:])
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return {"broken": f"torch's query for GPUs ended its process with {how}: {message or 'without output'}"}
    facts: dict[str, Any] = json.JSONDecoder().raw_decode(rest)[0]
    return facts


def _missing_build(kind: GpuKind, facts: Mapping[str, Any]) -> str | None:
    if "broken" in facts:
        return str(facts["broken"])
    if facts["failed"]:
        return f"torch does not import ({facts['failed']}): install its {kind.build} build again"
    if not facts["torch"]:
        return f"the package torch is not installed: install its {kind.build} build"
    if not facts[kind.version_key]:
        return f"torch {facts['torch']} is not a {kind.build} build: install torch from the {kind.build} wheel index"
    return None


def _none_visible(kind: GpuKind, facts: Mapping[str, Any]) -> str:
    masks = [f"{name}={os.environ[name]!r}" for name in (*kind.outer_masks, *kind.masks) if name in os.environ]
    if masks:
        return f"no {kind.vendor} GPU is visible with {' and '.join(masks)}: name GPUs that exist, or unset it"
    reason = f" ({facts['error']})" if facts["error"] else ""
    return f"no {kind.vendor} GPU is visible{reason}: see the output of {kind.tool}"
