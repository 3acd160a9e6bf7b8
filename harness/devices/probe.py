"""Child process of ``inventory``: queries torch for the GPUs, and prints them as one line of JSON.

Only this process starts a GPU context. Its stdout is for the answer only: output of drivers and libraries goes to
stderr.
"""

from __future__ import annotations

import json
import os
from typing import Any

from harness.devices.table import gpu_kinds

MARK = "iris-harness-gpus "


def main() -> None:
    """Write the answer to stdout and exit without destructors, since those of a broken driver may fail."""
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, f"\n{MARK}{json.dumps(facts())}\n".encode())
    os._exit(0)


def facts() -> dict[str, Any]:
    """Return torch's version and builds, the driver facts of each kind of GPU, and the GPUs.

    ``torch`` is None if it is not installed. ``failed``: the reason why it does not import; ``error``: the reason why
    it reports no GPUs; both in one line.
    """
    answer: dict[str, Any] = {"torch": None, "failed": None, "error": None, "gpus": []}
    for kind in gpu_kinds():
        answer |= {kind.version_key: None, **kind.driver_facts()}
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - any exception is reported in the answer
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        return {**answer, "failed": None if absent else _line(error)}
    answer["torch"] = torch.__version__
    for kind in gpu_kinds():
        answer[kind.version_key] = getattr(torch.version, kind.version_key, None)
        if answer[kind.version_key]:
            try:
                answer["gpus"] += kind.gpus(torch)
            except Exception as error:  # noqa: BLE001 - any exception is reported in the answer
                answer["error"] = _line(error)
    return answer


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
