"""The child process of ``inventory``: asks torch for the GPUs, and says what it found as one line of JSON.

Only this process starts a GPU context. Its stdout is for the answer alone: what drivers and libraries print there goes
to stderr.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

MARK = "iris-harness-gpus "


def main() -> None:
    """Write the answer to stdout and end at once: destructors of a broken driver have no say in it."""
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, f"\n{MARK}{json.dumps(facts())}\n".encode())
    os._exit(0)


def facts() -> dict[str, Any]:
    """torch's version and build, whether a kernel driver and its library are there, and the GPUs.

    ``torch`` is None where it is not installed. ``failed``: why it does not import; ``error``: why it gives no GPUs;
    both in one line.
    """
    found: dict[str, Any] = {"torch": None, "cuda": None, "hip": None, "failed": None, "error": None, "gpus": []}
    found["driver"] = os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia/version")
    found["kfd"] = os.path.exists("/dev/kfd")
    found["permission"] = os.access("/dev/kfd", os.R_OK | os.W_OK)
    found["library"] = _loads("libcuda.so.1")
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        return {**found, "failed": None if absent else _line(error)}
    found.update(torch=torch.__version__, cuda=torch.version.cuda, hip=torch.version.hip)
    if not (torch.version.cuda or torch.version.hip):
        return found
    try:
        cuda: Any = torch.cuda  # partly without types
        cuda.init()
        found["gpus"] = [_gpu(torch, index) for index in range(cuda.device_count())]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        found["error"] = _line(error)
    return found


def _gpu(torch: Any, index: int) -> dict[str, Any]:
    known = torch.cuda.get_device_properties(index)
    arch = known.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{known.major}{known.minor}"
    others = (other for other in range(torch.cuda.device_count()) if other != index)
    return {
        "index": index,
        "name": known.name,
        "arch": arch,
        "memory": known.total_memory,
        "uuid": f"GPU-{str(known.uuid).removeprefix('GPU-')}",
        "bus_id": _bus_id(torch, known, index),
        "peers": [other for other in others if torch.cuda.can_device_access_peer(index, other)],
    }


def _bus_id(torch: Any, known: Any, index: int) -> str:
    """As in ``0000:1b:00.0``; from the driver where this torch does not tell it."""
    if hasattr(known, "pci_bus_id"):
        return f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0"
    text = ctypes.create_string_buffer(32)
    if torch.version.hip:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            path = next(line.split()[-1] for line in maps if "libamdhip64" in line)
        status = ctypes.CDLL(path).hipDeviceGetPCIBusId(text, len(text), index)
    else:
        status = ctypes.CDLL("libcuda.so.1").cuDeviceGetPCIBusId(text, len(text), index)
    if status != 0:
        raise OSError(f"the PCI bus id of GPU {index} could not be read: status {status}")
    domain, _, rest = text.value.decode().lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
