"""Files of the emulated machine: what the amdgpu driver shows under /sys and /dev, and the commands of ROCm.

An unprivileged process cannot add files to /sys. ``root`` makes a folder tree with ``sys``, ``dev`` and ``opt/rocm`` in
it, and the variable VARIABLE names it: programs of this project that read the driver's files look there instead of
below ``/``. The tree depends on nothing but the GPUs and this installation. It lies in the user's cache folder, all
programs with the same machine share it, and a program that is killed leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.emulated_machine.facts import Gpu, cpu_nodes

VARIABLE = "IRIS_SYSTEM_ROOT"
"""The folder that holds ``sys`` and ``dev``; ``/`` if it is not set."""

TOOLS = ("rocm-smi", "amd-smi", "rocminfo", "rocm_agent_enumerator")
"""The commands of ROCm that the machine has, in ``opt/rocm/bin``."""

_ROOT = Path(__file__).resolve().parents[2]
_XGMI, _PCIE = 11, 2  # HSA_IOLINKTYPE_*, linux/include/uapi/linux/kfd_sysfs.h


def cache() -> Path:
    """Return the folder for what the emulated machine makes once and keeps."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "iris-harness" / "machine"


def root(gpus: Sequence[Gpu]) -> Path:
    """Return the folder tree of a machine with these GPUs; make it if it does not exist."""
    files = dict(_files(gpus))
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    place = cache() / f"{gpus[0].model.arch}-{len(gpus)}-{digest}"
    if not place.is_dir():
        _write(place, files)
    return place


def _write(place: Path, files: Mapping[str, str]) -> None:
    """Make ``place`` with ``files`` at once: two programs may do it at the same time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=place.parent, prefix=".new-"))
    try:
        new.chmod(0o755)
        for name, text in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if "/bin/" in name:
                path.chmod(0o755)
        (new / "opt/rocm/lib").mkdir()
        new.rename(place)
    except OSError:
        if not place.is_dir():  # the other program has made it
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _files(gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    yield "dev/kfd", ""
    nodes = "sys/class/kfd/kfd/topology/nodes"
    for node in cpu_nodes():
        yield f"{nodes}/{node}/gpu_id", "0\n"
        yield f"{nodes}/{node}/properties", _lines({"cpu_cores_count": 96, "simd_count": 0, "domain": 0})
    for gpu in gpus:
        own = f"{nodes}/{gpu.kfd_node}"
        yield f"{own}/gpu_id", f"{gpu.kfd_id}\n"
        yield f"{own}/name", f"{gpu.model.arch}\n"
        yield f"{own}/properties", _lines(_properties(gpu))
        yield f"{own}/io_links/0/properties", _link(_PCIE, gpu.kfd_node, gpu.numa_node)
        others = [other for other in gpus if other is not gpu]
        for number, other in enumerate(others, start=1):
            yield f"{own}/io_links/{number}/properties", _link(_XGMI, gpu.kfd_node, other.kfd_node)
        device = f"sys/bus/pci/devices/{gpu.bus_id}"
        yield f"{device}/numa_node", f"{gpu.numa_node}\n"
        yield f"{device}/vendor", f"{gpu.model.vendor_id:#06x}\n"
        yield f"{device}/device", f"{gpu.model.device_id:#06x}\n"
        yield f"{device}/unique_id", f"{gpu.unique_id:016x}\n"
        yield f"{device}/mem_info_vram_total", f"{gpu.model.memory}\n"
        # Memory of the emulated GPUs is host memory, counted by the kernel for the process that has it.
        yield f"{device}/mem_info_vram_used", "0\n"
    for tool in TOOLS:
        yield f"opt/rocm/bin/{tool}", _tool(tool, gpus)


def _properties(gpu: Gpu) -> dict[str, int]:
    model = gpu.model
    return {
        "cpu_cores_count": 0,
        "simd_count": 4 * model.compute_units,
        "mem_banks_count": 1,
        "io_links_count": 1,
        "simd_per_cu": 4,
        "wave_front_size": 64,
        "num_xcc": model.compute_dies,
        "gfx_target_version": int(f"9{int(model.arch[4], 16):02d}{int(model.arch[5], 16):02d}"),
        "vendor_id": model.vendor_id,
        "device_id": model.device_id,
        "location_id": gpu.bus << 8,
        "domain": 0,
        "unique_id": gpu.unique_id,
        "max_engine_clk_fcompute": model.clock,
    }


def _link(kind: int, start: int, end: int) -> str:
    return _lines({"type": kind, "node_from": start, "node_to": end, "weight": 15 if kind == _XGMI else 20})


def _lines(properties: Mapping[str, int]) -> str:
    return "".join(f"{name} {value}\n" for name, value in properties.items())


def _tool(name: str, gpus: Sequence[Gpu]) -> str:
    return (
        f"#!{sys.executable}\nimport sys\nsys.path.append({str(_ROOT)!r})\n"
        "from harness.emulated_machine import facts\nfrom harness.emulated_machine.smi import tools\n"
        f"gpus = facts.gpus({gpus[0].model.arch!r}, {len(gpus)})\nsys.exit(tools.main({name!r}, sys.argv[1:], gpus))\n"
    )
