"""A stand-in ``libamd_smi.so`` with GPUs like an MI300X's, for the real amdsmi package of several ROCm versions.

Which functions the library must have and how its structures are laid out is read from the package itself.
"""

from __future__ import annotations

import functools
import json
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.telemetry.standin import Script, build, handle, out, run_python

INSTALLED = "installed"
FURTHER = ("6.0.2", "6.2.4", "6.4.4")
"""Versions that are fetched once, where there is a package index; the installed one is always exercised."""
NOT_SUPPORTED = 2
NONE16, NONE32, NONE64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
SOCKET = 0x900
XGMI_WAFL = 1 << 7

LAYOUT = """
import ctypes, json
from amdsmi import amdsmi_wrapper as wrapper

def fields(kind, base=0, name=""):
    for entry in getattr(kind, "_fields_", ()):
        start = base + getattr(kind, entry[0]).offset
        inner, count = entry[1], 1
        while hasattr(inner, "_length_"):
            inner, count = inner._type_, count * inner._length_
        path = name + entry[0]
        if hasattr(inner, "_fields_") and count == 1:
            yield from fields(inner, start, path + ".")
        else:
            yield path, [start, ctypes.sizeof(inner), count]

kinds = {}
for name, kind in vars(wrapper).items():
    if isinstance(kind, type) and issubclass(kind, (ctypes.Structure, ctypes.Union)) and hasattr(kind, "_fields_"):
        kinds[name] = {"size": ctypes.sizeof(kind), "fields": dict(fields(kind))}
print(json.dumps(kinds))
"""


class Package:
    """One version of amdsmi: where it is imported from, a stand-in library for it, and its structures."""

    def __init__(self, version: str, folder: Path, place: Path) -> None:
        self.version = version
        self.place = place
        wrapper = (place / "amdsmi" / "amdsmi_wrapper.py").read_text()
        names = re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)
        self.library = build(folder / "lib" / "libamd_smi.so", names, NOT_SUPPORTED)
        script = Script(folder / "layout")
        self.kinds: dict[str, Any] = json.loads(self.run(LAYOUT, script.path))

    def run(self, code: str, script: Path, **environment: str) -> str:
        variables = {**self.variables(script), **environment}
        return run_python(code, script=script, library=self.library, path=[self.place], **variables)

    def variables(self, script: Path) -> dict[str, str]:
        return {"STANDIN": str(script), "ROCM_PATH": str(self.library.parents[1]), "ROCM_HOME": ""}

    def pack(self, kind: str, **fields: Any) -> bytes:
        """The bytes of a structure; what is not named is zero."""
        data = bytearray(self.kinds[kind]["size"])
        for name, value in fields.items():
            start, size, count = self.kinds[kind]["fields"][name.replace("__", ".")]
            if isinstance(value, str):
                data[start : start + len(value)] = value.encode()
                continue
            values = value if isinstance(value, list) else [value] * count
            for index, each in enumerate(values):
                data[start + index * size : start + (index + 1) * size] = each.to_bytes(size, "little")
        return bytes(data)

    def has(self, kind: str, name: str = "") -> bool:
        return kind in self.kinds and (not name or name in self.kinds[kind]["fields"])


def package(version: str, folder: Path, cache: Path) -> Package:
    """The package, fetched into ``cache`` if it is not the installed one; skips the test where it cannot be had."""
    if version == INSTALLED:
        found = subprocess.run(
            [sys.executable, "-c", "import importlib.util as u; print(u.find_spec('amdsmi').origin)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            pytest.skip("needs the package amdsmi")
        return Package(version, folder, Path(found.stdout.strip()).parents[1])
    wheels = cache / version
    if not list(wheels.glob("*.whl")) and (reason := _fetch(version, wheels)):
        pytest.skip(f"needs a package index for amdsmi {version}: {reason}")
    place = folder / "package"
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        wheel.extractall(place)
    return Package(version, folder, place)


@functools.cache
def _fetch(version: str, wheels: Path) -> str:
    """Why the wheel could not be fetched; empty when it was."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "0", "--timeout", "5"]
    try:
        done = subprocess.run(
            [*pip, "--dest", str(wheels), f"amdsmi=={version}"], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return "pip took too long"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1]


def hip_uuid(index: int) -> str:
    return f"GPU-{0xABCDEF0000000000 + index:016x}"


def bus_id(index: int) -> str:
    return f"0000:{0x20 + index:02x}:00.0"


class Amd(Script):
    """``count`` GPUs at 500 W; amdsmi lists them in the reverse of HIP's order."""

    def __init__(self, path: Path, package: Package, count: int = 2) -> None:
        super().__init__(path)
        self.package = package
        self.say("amdsmi_init", 0, "log")
        self.say("amdsmi_shut_down", 0, "log")
        self.handles(*reversed(range(count)))
        version = package.kinds["amdsmi_version_t"]
        build = version["fields"]["build"][0]
        self.say(
            "amdsmi_get_lib_version",
            0,
            out(0, package.pack("amdsmi_version_t", major=26)),
            f"a0+{build}:{b'x.y'.hex()}",
        )
        for index in range(count):
            self.gpu(index)
        self.write()

    def handles(self, *indices: int) -> None:
        """What amdsmi lists, in this order."""
        self.say("amdsmi_get_socket_handles", 0, out(0, struct.pack("I", 1)), out(1, struct.pack("Q", SOCKET)))
        array = struct.pack(f"{len(indices)}Q", *map(handle, indices))
        self.say("amdsmi_get_processor_handles", 0, out(1, struct.pack("I", len(indices))), out(2, array))

    def gpu(self, index: int, bus: int | None = None, function: int = 0) -> None:
        """Everything that GPU ``index`` answers."""
        bus = 0x20 + index if bus is None else bus
        self.answer("amdsmi_get_gpu_device_bdf", index, out(1, struct.pack("Q", bus << 8 | function)))
        if self.package.has("amdsmi_enumeration_info_t"):
            info = self.package.pack("amdsmi_enumeration_info_t", hip_uuid=hip_uuid(index))
            self.answer("amdsmi_get_gpu_enumeration_info", index, out(1, info))
        if self.package.has("amdsmi_kfd_info_t", "current_partition_id"):
            self.structure("amdsmi_get_gpu_kfd_info", index, "amdsmi_kfd_info_t", current_partition_id=function)
        self.answer("amdsmi_get_gpu_compute_partition", index, out(1, b"SPX\0"))
        self.answer("amdsmi_get_gpu_memory_partition", index, out(1, b"NPS1\0"))
        self.structure("amdsmi_get_gpu_driver_info", index, "amdsmi_driver_info_t", driver_version="6.12.12")
        self.power(index, current_socket_power=500, average_socket_power=NONE16)
        self.energy(index, 1_000_000)
        self.ecc(index)
        self.ecc(index, block=XGMI_WAFL)
        self.answer("amdsmi_get_gpu_bad_page_info", index, out(1, struct.pack("I", 0)))
        self.structure("amdsmi_get_gpu_vram_usage", index, "amdsmi_vram_usage_t", vram_total=196592, vram_used=1024)
        clock = "clk" if self.package.has("amdsmi_clk_info_t", "clk") else "cur_clk"
        data = self.package.pack("amdsmi_clk_info_t", **{clock: 2100})
        self.answer("amdsmi_get_clock_info", index, out(2, data))
        self.metrics(index)
        self.violations(index)

    def answer(self, call: str, index: int, *words: str, status: int = 0) -> None:
        self.say(call, status, f"a0={handle(index)}", *words)

    def structure(self, call: str, index: int, kind: str, *, argument: int = 1, **fields: Any) -> None:
        self.answer(call, index, out(argument, self.package.pack(kind, **fields)))

    def power(self, index: int, **fields: int) -> None:
        known = {"average_socket_power", "current_socket_power", "socket_power"}
        known = {name for name in known if self.package.has("amdsmi_power_info_t", name)}
        data = self.package.pack("amdsmi_power_info_t", **{**dict.fromkeys(known, NONE16), **fields})
        self.answer("amdsmi_get_power_info", index, out(1, data))
        self.answer("amdsmi_get_power_info_v2", index, out(2, data))

    def energy(self, index: int, count: int, resolution: float = 15.3, at: int = 0) -> None:
        words = [
            out(1, struct.pack("Q", count)),
            out(2, struct.pack("f", resolution)),
            out(3, struct.pack("Q", at or NONE64)),
        ]
        self.answer("amdsmi_get_energy_count", index, *words)

    def ecc(self, index: int, corrected: int = 0, uncorrected: int = 0, block: int | None = None) -> None:
        data = self.package.pack("amdsmi_error_count_t", correctable_count=corrected, uncorrectable_count=uncorrected)
        if block is None:
            self.answer("amdsmi_get_gpu_total_ecc_count", index, out(1, data))
        else:
            self.answer("amdsmi_get_gpu_ecc_count", index, f"a1={block}", out(2, data))

    def metrics(self, index: int, **fields: Any) -> None:
        """The firmware's table as an MI300X fills it: no edge temperature, no throttle status, seven links of eight."""
        usual = {
            "temperature_edge": NONE16,
            "temperature_hotspot": 55,
            "temperature_mem": 48,
            "throttle_status": NONE32,
            "indep_throttle_status": NONE64,
            "firmware_timestamp": NONE64,
            "system_clock_counter": NONE64,
            "xgmi_read_data_acc": [100] * 7 + [NONE64],
            "xgmi_write_data_acc": [200] * 7 + [NONE64],
            "pcie_replay_count_acc": 0,
            **dict.fromkeys(TICKS, 0),
            **fields,
        }
        kind = "amdsmi_gpu_metrics_t"
        known = {name: value for name, value in usual.items() if self.package.has(kind, name)}
        self.structure("amdsmi_get_gpu_metrics_info", index, kind, **known)

    def violations(self, index: int, **fields: Any) -> None:
        kind = "amdsmi_violation_status_t"
        if not self.package.has(kind):
            return
        known = self.package.kinds[kind]["fields"]
        values = {name: 0 for name in known if name.startswith(("acc_", "active_")) and known[name][2] == 1}
        self.structure("amdsmi_get_violation_status", index, kind, **{**values, **fields})


TICKS = (
    "accumulation_counter",
    "ppt_residency_acc",
    "prochot_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
)
