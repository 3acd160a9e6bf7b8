"""The GPUs of an emulated machine as its libraries and tools describe them: names, sizes, addresses, links.

torch, HIP, amdsmi, the command line tools and the files of the driver all take their answers from here, so that they
agree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_GPUS = 8
"""The GPUs of one node: MI300X and MI350X boards carry eight."""

_BUSES = (0x0C, 0x22, 0x38, 0x5C, 0x9F, 0xAF, 0xBF, 0xDF)
_CPU_NODES = 2


@dataclass(frozen=True)
class Model:
    """A GPU model. ``memory`` in bytes, ``power_cap`` in watts, clocks in MHz; ``revision`` as PCI has it."""

    arch: str
    name: str
    compute_units: int
    memory: int
    device_id: int
    revision: int
    power_cap: int
    clock: int
    memory_clock: int
    compute_dies: int = 8
    vendor_id: int = 0x1002


MODELS = {
    model.arch: model
    for model in (
        Model("gfx942", "AMD Instinct MI300X", 304, 192 << 30, 0x74A1, 0x00, 750, 2100, 1300),
        Model("gfx950", "AMD Instinct MI350X", 256, 288 << 30, 0x75A0, 0x00, 1000, 2200, 1900),
    )
}


@dataclass(frozen=True)
class Gpu:
    """GPU ``index`` of the machine."""

    index: int
    model: Model

    @property
    def bus(self) -> int:
        """Its PCI bus."""
        return _BUSES[self.index]

    @property
    def bus_id(self) -> str:
        """Its PCI address, such as ``0000:0c:00.0``."""
        return f"0000:{self.bus:02x}:00.0"

    @property
    def unique_id(self) -> int:
        """The 64 bits that the driver knows it by."""
        return 0x1815_0000_0000_0000 | self.model.device_id << 16 | self.bus

    @property
    def uuid(self) -> str:
        """HIP's uuid, as in ``GPU-1815000074a1000c``."""
        return f"GPU-{self.unique_id:016x}"

    @property
    def numa_node(self) -> int:
        """The NUMA node of its half of the board."""
        return self.index * _CPU_NODES // MAX_GPUS

    @property
    def kfd_node(self) -> int:
        """Its number among the driver's nodes, of which the processors are the first."""
        return _CPU_NODES + self.index

    @property
    def kfd_id(self) -> int:
        """The driver's id of it, never 0."""
        return 0x1000 | self.bus

    @property
    def target(self) -> str:
        """The arch with its features, as HIP's ``gcnArchName`` has it."""
        return f"{self.model.arch}:sramecc+:xnack-"


def gpus(arch: str, count: int) -> tuple[Gpu, ...]:
    """Return the GPUs of a machine; KeyError for an unknown arch."""
    return tuple(Gpu(index, MODELS[arch]) for index in range(count))


def visible(arch: str, count: int, environment: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """Return the GPUs of a machine that the variables of visible devices choose, in their order.

    ROCR_VISIBLE_DEVICES chooses by index or uuid; HIP_VISIBLE_DEVICES, or else CUDA_VISIBLE_DEVICES, chooses by index
    within these. As in HIP, an entry that names no GPU hides itself and all entries after it.
    """
    chosen = gpus(arch, count)
    masks = ("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    for names in masks:
        text = next((environment[name] for name in names if name in environment), None)
        if text is not None:
            chosen = tuple(_choose(chosen, text))
    return chosen


def _choose(gpus: Sequence[Gpu], text: str) -> Iterator[Gpu]:
    seen = set()
    for entry in text.split(","):
        word = entry.strip()
        index = int(word) if word.isdecimal() else next((i for i, gpu in enumerate(gpus) if gpu.uuid == word), -1)
        if not 0 <= index < len(gpus) or index in seen:
            return
        seen.add(index)
        yield gpus[index]


def cpu_nodes() -> range:
    """Return the numbers of the driver's nodes that are processors."""
    return range(_CPU_NODES)
