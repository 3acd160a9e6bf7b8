"""The compiled stages of the library's kernels, kept on disk when ``IRIS_KERNEL_ARTIFACTS_DIR`` names a folder.

    <folder>/<algorithm>/<kernel>[-<dtype>]-<12 digits of the hash>/rank<rank>/
        kernel.ttir  kernel.ttgir  kernel.llir  kernel.amdgcn  kernel.hsaco  ...    the compiled stages
        metadata.json                                                               what it is, and how it was launched

Each rank has folders of its own, so no two processes write the same file. A specialisation is written once per process.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from iris_under_test.host.logging import DEBUG, log

__all__ = ["ARTIFACTS_VARIABLE", "iris_launch"]

ARTIFACTS_VARIABLE = "IRIS_KERNEL_ARTIFACTS_DIR"

_kept: set[Path] = set()


def iris_launch(
    kernel: Any,
    grid: tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]],
    *args: Any,
    algorithm: str,
    rank: int,
    dtype: torch.dtype | None = None,
    **kwargs: Any,
) -> Any:
    """Launch ``kernel[grid](*args, **kwargs)`` on the current stream; return Triton's result, the compiled kernel.

    If ``IRIS_KERNEL_ARTIFACTS_DIR`` is set, the compiled stages and a metadata file are also written, after the launch:
    see the module. ``algorithm`` (``"all_gather"``), the global ``rank`` and the payload's ``dtype`` name the folder.
    The variable is read at each launch; unset, it costs nothing else.

    Raises:
        RuntimeError: the artifacts cannot be written. The kernel has been launched.
    """
    compiled = kernel[grid](*args, **kwargs)
    if folder := os.environ.get(ARTIFACTS_VARIABLE):
        try:
            _keep(Path(folder), compiled, grid, algorithm, rank, dtype)
        except OSError as error:
            raise RuntimeError(
                f"cannot write the artifacts of {algorithm} below {folder} ({ARTIFACTS_VARIABLE}): {error}"
            ) from error
    return compiled


def _keep(root: Path, compiled: Any, grid: Any, algorithm: str, rank: int, dtype: torch.dtype | None) -> None:
    spec = "-".join(part for part in (compiled.metadata.name, _dtype_name(dtype), compiled.hash[:12]) if part)
    folder = root / _file_name(algorithm) / _file_name(spec) / f"rank{rank}"
    if folder in _kept:
        return
    folder.mkdir(parents=True, exist_ok=True)
    stages = {}
    for stage, content in compiled.asm.items():
        stages[stage] = f"kernel.{stage}"
        _write(folder / stages[stage], content if isinstance(content, bytes) else str(content).encode())
    metadata = {
        "kernel": compiled.metadata.name,
        "algorithm": algorithm,
        "rank": rank,
        "dtype": _dtype_name(dtype) or None,
        "grid": list(grid) if isinstance(grid, (tuple, list)) else "computed from the kernel's options",
        "hash": compiled.hash,
        "signature": {str(name): str(kind) for name, kind in compiled.src.signature.items()},
        "constants": {_argument(compiled.src, path): str(value) for path, value in compiled.src.constants.items()},
        "options": {name: _plain(value) for name, value in compiled.metadata._asdict().items()},
        "stages": stages,
    }
    # Last: where it lies, everything it names lies too.
    _write(folder / "metadata.json", (json.dumps(metadata, indent=1, sort_keys=True) + "\n").encode())
    _kept.add(folder)
    log(DEBUG, f"artifacts of {spec} are in {folder}", rank, module="kernel_artifacts")


def _argument(source: Any, path: tuple[int, ...]) -> str:
    """``BLOCK``, or ``pair.1`` for the second element of the tuple ``pair``."""
    return ".".join([source.fn.arg_names[path[0]], *map(str, path[1:])])


def _write(path: Path, content: bytes) -> None:
    """Write the file atomically: a process that is killed leaves no partial file of that name."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and not hasattr(value, "_asdict"):
        return [_plain(each) for each in value]
    return str(value)


def _dtype_name(dtype: torch.dtype | None) -> str:
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text)
