"""The commands ``rocm-smi``, ``amd-smi``, ``rocminfo`` and ``rocm_agent_enumerator`` of the emulated machine.

They answer the questions by which libraries and job scripts find out what the machine has. An option that the machine
does not answer is an error that names it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.emulated_machine.facts import Gpu
from harness.errors import UsageError

_VENDOR = "Advanced Micro Devices, Inc. [AMD/ATI]"
_PAGE = "docs/emulated-machine.md lists what the emulated machine answers"


def main(name: str, arguments: Sequence[str], gpus: Sequence[Gpu]) -> int:
    """Run the command ``name`` of a machine with these GPUs; return its exit status, 2 for bad input."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        return _COMMANDS[name](gpus, list(arguments))
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; {_PAGE}")


# -- rocm-smi --------------------------------------------------------------------------------------------------------


def _rocm_smi(gpus: Sequence[Gpu], arguments: list[str]) -> int:
    parser = _Parser(prog="rocm-smi", allow_abbrev=False, description="Emulated GPUs, as rocm-smi reports them.")
    for option in _CARD_OPTIONS:
        parser.add_argument(*option.split(), dest=option.split()[-1][2:], action="store_true")
    for option in ("--showtopo", "--showtopoaccess", "--showtopotype", "--showtopohops", "--showtoponuma", "--json"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--showtopoweight", action="store_true")
    parser.add_argument("--showmeminfo", nargs="+", choices=("vram", "vis_vram", "gtt", "all"), default=[])
    parser.add_argument("-d", "--device", nargs="+", type=int, default=[gpu.index for gpu in gpus])
    options = parser.parse_args(arguments)
    if bad := [index for index in options.device if not 0 <= index < len(gpus)]:
        raise UsageError(f"--device: there is no GPU {bad[0]}; this machine has GPUs 0 to {len(gpus) - 1}")
    chosen = [gpus[index] for index in options.device]
    report: dict[str, dict[str, str]] = {f"card{gpu.index}": {} for gpu in chosen}
    requested = [option for option in _CARD_OPTIONS if getattr(options, option.split()[-1][2:])]
    topology = dict(_topology(chosen, options))
    if not requested and not topology and not options.showmeminfo:
        requested = ["-P --showpower", "-i --showid", "--showbus"]
    for gpu in chosen:
        card = report[f"card{gpu.index}"]
        for option in requested:
            card.update(_CARD_OPTIONS[option](gpu))
        for kind in ("vram", "vis_vram", "gtt") if "all" in options.showmeminfo else options.showmeminfo:
            card[f"{kind.upper()} Total Memory (B)"] = str(gpu.model.memory)
            card[f"{kind.upper()} Total Used Memory (B)"] = "0"
    if topology:
        report["system"] = topology
    if options.json:
        print(json.dumps({name: entries for name, entries in report.items() if entries}))
    else:
        for name, entries in report.items():
            for key, value in entries.items():
                print(f"{name.replace('card', 'GPU[', 1) + ']' if name != 'system' else name}\t\t: {key}: {value}")
    return 0


def _topology(gpus: Sequence[Gpu], options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    pairs = [(gpu.index, other.index) for gpu in gpus for other in gpus if gpu.index < other.index]
    facts = {
        "showtopoweight": ("Weight", "15"),
        "showtopohops": ("Hops", "1"),
        "showtopotype": ("Link Type", "XGMI"),
        "showtopoaccess": ("Link accessible", "True"),
    }
    for option, (label, value) in facts.items():
        if options.showtopo or getattr(options, option):
            yield from ((f"(Topology) {label} between DRM devices {one} and {two}", value) for one, two in pairs)
    if options.showtopo or options.showtoponuma:
        for gpu in gpus:
            yield f"(Topology) GPU {gpu.index} Numa Node", str(gpu.numa_node)


def _id(gpu: Gpu) -> dict[str, str]:
    return {
        "Device Name": gpu.model.name,
        "Device ID": f"{gpu.model.device_id:#06x}",
        "Device Rev": f"{gpu.model.revision:#04x}",
        "GUID": str(gpu.kfd_id),
    }


def _product(gpu: Gpu) -> dict[str, str]:
    return {
        "Card Series": gpu.model.name,
        "Card Model": f"{gpu.model.device_id:#06x}",
        "Card Vendor": _VENDOR,
        "Node ID": str(gpu.kfd_node),
        "GFX Version": gpu.model.arch,
    }


_CARD_OPTIONS: dict[str, Callable[[Gpu], dict[str, str]]] = {
    "-i --showid": _id,
    "--showproductname": _product,
    "--showuniqueid": lambda gpu: {"Unique ID": f"{gpu.unique_id:#018x}"},
    "--showbus": lambda gpu: {"PCI Bus": gpu.bus_id.upper()},
    "-P --showpower": lambda gpu: {"Current Socket Graphics Package Power (W)": str(float(gpu.model.power_cap // 5))},
    "-M --showmaxpower": lambda gpu: {"Max Graphics Package Power (W)": str(float(gpu.model.power_cap))},
    "-u --showuse": lambda gpu: {"GPU use (%)": "0"},
    "--showmemuse": lambda gpu: {"GPU Memory Allocated (VRAM%)": "0"},
    "--showcomputepartition": lambda gpu: {"Compute Partition": "SPX"},
    "--showmemorypartition": lambda gpu: {"Memory Partition": "NPS1"},
}


# -- amd-smi ---------------------------------------------------------------------------------------------------------


def _amd_smi(gpus: Sequence[Gpu], arguments: list[str]) -> int:
    parser = _Parser(prog="amd-smi", allow_abbrev=False, description="Emulated GPUs, as amd-smi reports them.")
    parser.add_argument("command", choices=_AMD_SMI)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-g", "--gpu", nargs="+", default=["all"])
    options, rest = parser.parse_known_args(arguments)
    parts = [word.lstrip("-").replace("-", "_") for word in rest]
    chosen = gpus
    if options.gpu != ["all"]:
        if bad := [word for word in options.gpu if not word.isdecimal() or int(word) >= len(gpus)]:
            raise UsageError(f"--gpu: there is no GPU {bad[0]!r}; this machine has GPUs 0 to {len(gpus) - 1}")
        chosen = [gpus[int(word)] for word in options.gpu]
    report = [_AMD_SMI[options.command](gpu, gpus) for gpu in chosen]
    if options.command == "version":
        report = report[:1]
    elif parts:
        if bad := [word for word, part in zip(rest, parts, strict=True) if part not in report[0]]:
            raise UsageError(f"{options.command} has no part {bad[0]}; {_PAGE}")
        report = [{key: value for key, value in entry.items() if key in ("gpu", *parts)} for entry in report]
    if options.json:
        print(json.dumps(report, indent=4))
    else:
        for entry in report:
            print("\n".join(_text(entry)), end="\n\n")
    return 0


def _text(entry: dict[str, Any], depth: int = 0) -> Iterator[str]:
    for key, value in entry.items():
        if isinstance(value, dict):
            yield f"{'    ' * depth}{key.upper()}:"
            yield from _text(value, depth + 1)
        elif isinstance(value, list):
            yield f"{'    ' * depth}{key.upper()}:"
            for each in value:
                yield from _text(each, depth + 1)
        else:
            yield f"{'    ' * depth}{key.upper()}: {value}"


def _listed(gpu: Gpu, _: Sequence[Gpu]) -> dict[str, Any]:
    uuid = f"{gpu.unique_id:016x}"
    return {"gpu": gpu.index, "bdf": gpu.bus_id, "uuid": uuid, "kfd_id": gpu.kfd_id, "node_id": gpu.kfd_node}


def _static(gpu: Gpu, _: Sequence[Gpu]) -> dict[str, Any]:
    model = gpu.model
    return {
        "gpu": gpu.index,
        "asic": {
            "market_name": model.name,
            "vendor_id": f"{model.vendor_id:#06x}",
            "vendor_name": _VENDOR,
            "device_id": f"{model.device_id:#06x}",
            "rev_id": f"{model.revision:#04x}",
            "asic_serial": f"0x{gpu.unique_id:016X}",
            "oam_id": gpu.index,
            "num_compute_units": model.compute_units,
            "target_graphics_version": model.arch,
        },
        "bus": {"bdf": gpu.bus_id},
        "board": {"product_name": model.name},
        "limit": {"max_power": {"value": model.power_cap, "unit": "W"}},
        "vram": {"type": "HBM", "size": {"value": model.memory >> 20, "unit": "MB"}},
        "numa": {"node": gpu.numa_node, "affinity": gpu.numa_node},
        "partition": {"compute_partition": "SPX", "memory_partition": "NPS1"},
    }


def _metric(gpu: Gpu, _: Sequence[Gpu]) -> dict[str, Any]:
    total = {"value": gpu.model.memory >> 20, "unit": "MB"}
    return {
        "gpu": gpu.index,
        "usage": {"gfx_activity": {"value": 0, "unit": "%"}},
        "power": {"socket_power": {"value": gpu.model.power_cap // 5, "unit": "W"}},
        "mem_usage": {"total_vram": total, "used_vram": {"value": 0, "unit": "MB"}, "free_vram": total},
    }


def _links(gpu: Gpu, gpus: Sequence[Gpu]) -> dict[str, Any]:
    links = [
        {
            "gpu": other.index,
            "bdf": other.bus_id,
            "weight": 0 if other is gpu else 15,
            "link_status": "ENABLED",
            "link_type": "SELF" if other is gpu else "XGMI",
            "num_hops": 0 if other is gpu else 1,
        }
        for other in gpus
    ]
    return {"gpu": gpu.index, "bdf": gpu.bus_id, "links": links}


_AMD_SMI: dict[str, Callable[[Gpu, Sequence[Gpu]], dict[str, Any]]] = {
    "list": _listed,
    "static": _static,
    "metric": _metric,
    "topology": _links,
    "version": lambda gpu, gpus: {"tool": "AMDSMI Tool of the emulated machine"},
}


# -- rocminfo --------------------------------------------------------------------------------------------------------


def _rocminfo(gpus: Sequence[Gpu], arguments: list[str]) -> int:
    if arguments:
        raise UsageError(f"it takes no arguments, got {arguments[0]!r:.60}")
    print("HSA System Attributes\nRuntime Version:         1.1\nMachine Model:           LARGE\n\nHSA Agents\n")
    for gpu in gpus:
        model = gpu.model
        facts = {
            "Name": model.arch,
            "Uuid": gpu.uuid,
            "Marketing Name": model.name,
            "Vendor Name": "AMD",
            "Node": gpu.kfd_node,
            "Device Type": "GPU",
            "Chip ID": f"{model.device_id}({model.device_id:#x})",
            "BDFID": gpu.bus << 8,
            "Compute Unit": model.compute_units,
            "SIMDs per CU": 4,
            "Max Clock Freq. (MHz)": model.clock,
            "Wavefront Size": "64(0x40)",
        }
        print(f"*******\nAgent {gpu.kfd_node + 1}\n*******")
        for key, value in facts.items():
            print(f"  {key + ':':<25}{value}")
        print("  Pool Info:\n    Pool 1\n      Segment:               GLOBAL")
        print(f"      Size:                  {_kib(model.memory)}")
        print(f"  ISA Info:\n    ISA 1\n      Name:                  amdgcn-amd-amdhsa--{gpu.target}\n")
    print("*** Done ***")
    return 0


def _kib(size: int) -> str:
    return f"{size >> 10}({size >> 10:#x}) KB"


def _agents(gpus: Sequence[Gpu], arguments: list[str]) -> int:
    parser = _Parser(prog="rocm_agent_enumerator", allow_abbrev=False)
    parser.add_argument("-name", action="store_true", help="full names of the targets")
    parser.add_argument("-t", choices=("GPU", "CPU", "all"), default="GPU")
    options = parser.parse_args(arguments)
    names = [f"amdgcn-amd-amdhsa--{gpu.target}" if options.name else gpu.model.arch for gpu in gpus]
    if options.t != "GPU" and not options.name:
        names.insert(0, "gfx000")
    print("\n".join(names if options.t != "CPU" else names[:1]))
    return 0


_COMMANDS: dict[str, Callable[[Sequence[Gpu], list[str]], int]] = {
    "rocm-smi": _rocm_smi,
    "amd-smi": _amd_smi,
    "rocminfo": _rocminfo,
    "rocm_agent_enumerator": _agents,
}
