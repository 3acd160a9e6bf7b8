"""Answers of ``libamd_smi.so`` for GPUs like an MI300X, as a script for ``scripted``.

Which functions the library must have and how its structures are laid out is read from the installed amdsmi package: the
two differ between versions of ROCm.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.emulated_machine.facts import Gpu
from harness.emulated_machine.smi.scripted import Script, handle, out

NOT_SUPPORTED = 2
"""amdsmi's status for a function that a GPU does not have."""

NONE16, NONE32, NONE64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
SOCKET = 0x900
XGMI_WAFL = 1 << 7
_XGMI_LINK, _HIVE = 2, 0x1815_0000_0000_0001

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
"""Program that prints the structures of the package as JSON; it must find a library with all ``functions``."""


def functions(package: Path) -> list[str]:
    """Return the names of the functions that the amdsmi package in ``package`` binds."""
    wrapper = (package / "amdsmi_wrapper.py").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)))


class Structures:
    """The structures of one version of amdsmi, as LAYOUT prints them."""

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        self.kinds = kinds

    def pack(self, kind: str, **fields: Any) -> bytes:
        """Return the bytes of a structure; fields that are not named are zero."""
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
        """Return whether there is such a structure, or such a field in it."""
        return kind in self.kinds and (not name or name in self.kinds[kind]["fields"])


class GpuAnswers(Script):
    """A script in which GPUs answer the queries of amdsmi."""

    def __init__(self, path: Path, structures: Structures) -> None:
        super().__init__(path)
        self.package = structures
        self.say("amdsmi_init", 0, "log")
        self.say("amdsmi_shut_down", 0, "log")
        version = structures.kinds["amdsmi_version_t"]
        build = version["fields"]["build"][0]
        self.say(
            "amdsmi_get_lib_version",
            0,
            out(0, structures.pack("amdsmi_version_t", major=26)),
            f"a0+{build}:{b'x.y'.hex()}",
        )

    def handles(self, *indices: int) -> None:
        """Set the GPUs that amdsmi lists, in this order."""
        self.say("amdsmi_get_socket_handles", 0, out(0, struct.pack("I", 1)), out(1, struct.pack("Q", SOCKET)))
        array = struct.pack(f"{len(indices)}Q", *map(handle, indices))
        self.say("amdsmi_get_processor_handles", 0, out(1, struct.pack("I", len(indices))), out(2, array))

    def machine(self, gpus: Sequence[Gpu]) -> None:
        """Set every answer of the GPUs of an emulated machine."""
        self.handles(*(gpu.index for gpu in gpus))
        for gpu in gpus:
            self.gpu(gpu.index, gpu.bus, uuid=gpu.uuid)
            self._identity(gpu)
            for other in gpus:
                if other is not gpu:
                    self._link(gpu, other)
        self.write()

    def _identity(self, gpu: Gpu) -> None:
        model, index = gpu.model, gpu.index
        names = {"market_name": model.name, "vendor_name": "Advanced Micro Devices, Inc. [AMD/ATI]"}
        facts = {
            **names,
            "vendor_id": model.vendor_id,
            "subvendor_id": model.vendor_id,
            "device_id": model.device_id,
            "rev_id": model.revision,
            "asic_serial": f"{gpu.unique_id:016X}",
            "oam_id": index,
            "num_of_compute_units": model.compute_units,
            "target_graphics_version": int(model.arch.removeprefix("gfx"), 16),
        }
        self._known("amdsmi_get_gpu_asic_info", index, "amdsmi_asic_info_t", facts)
        self._known("amdsmi_get_gpu_board_info", index, "amdsmi_board_info_t", {"product_name": model.name})
        megabytes = model.memory >> 20
        self._known("amdsmi_get_gpu_vram_usage", index, "amdsmi_vram_usage_t", {"vram_total": megabytes})
        self._known("amdsmi_get_gpu_vram_info", index, "amdsmi_vram_info_t", {"vram_size": megabytes})
        # Kinds of memory: video memory, its part that the host sees (all of it), host memory mapped for the GPU.
        for kind, size in ((0, model.memory), (1, model.memory), (2, model.memory)):
            self.answer("amdsmi_get_gpu_memory_total", index, f"a1={kind}", out(2, struct.pack("Q", size)))
            self.answer("amdsmi_get_gpu_memory_usage", index, f"a1={kind}", out(2, struct.pack("Q", 0)))
        text = f"{gpu.unique_id:016x}".encode() + b"\0"
        self.answer("amdsmi_get_gpu_device_uuid", index, out(2, text))
        self.answer("amdsmi_topo_get_numa_node_number", index, out(1, struct.pack("I", gpu.numa_node)))
        self.answer("amdsmi_get_gpu_topo_numa_affinity", index, out(1, struct.pack("i", gpu.numa_node)))
        self.answer("amdsmi_get_gpu_id", index, out(1, struct.pack("H", model.device_id)))
        xgmi = {"xgmi_lanes": 16, "xgmi_hive_id": _HIVE, "xgmi_node_id": index, "index": index}
        self._known("amdsmi_get_xgmi_info", index, "amdsmi_xgmi_info_t", xgmi)
        # An idle GPU: launches on the emulated machine take time of the host's processors only.
        self.power(index, current_socket_power=model.power_cap // 5, average_socket_power=NONE16)

    def _link(self, gpu: Gpu, other: Gpu) -> None:
        peer = f"a1={handle(other.index)}"
        words = out(2, struct.pack("Q", 1)), out(3, struct.pack("I", _XGMI_LINK))
        self.answer("amdsmi_topo_get_link_type", gpu.index, peer, *words)
        self.answer("amdsmi_topo_get_link_weight", gpu.index, peer, out(2, struct.pack("Q", 15)))
        self.answer("amdsmi_is_P2P_accessible", gpu.index, peer, out(2, b"\1"))
        bandwidth = struct.pack("Q", 50_000)
        self.answer(
            "amdsmi_get_minmax_bandwidth_between_processors", gpu.index, peer, out(2, bandwidth), out(3, bandwidth)
        )

    def _known(self, call: str, number: int, kind: str, fields: Mapping[str, Any]) -> None:
        """Answer with the fields that this version's structure has."""
        if self.package.has(kind):
            known = {name: value for name, value in fields.items() if self.package.has(kind, name)}
            self.answer(call, number, out(1, self.package.pack(kind, **known)))

    def gpu(self, index: int, bus: int, function: int = 0, uuid: str = "") -> None:
        """Set every measurement of GPU ``index``."""
        self.answer("amdsmi_get_gpu_device_bdf", index, out(1, struct.pack("Q", bus << 8 | function)))
        if self.package.has("amdsmi_enumeration_info_t"):
            info = self.package.pack("amdsmi_enumeration_info_t", hip_uuid=uuid)
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
