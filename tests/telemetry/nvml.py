"""A stand-in ``libnvidia-ml.so.1`` with GPUs like an H200: a test sets its answers field by field."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pynvml

from harness.emulated_machine.smi.scripted import Script, build, handle, out

NOT_SUPPORTED = 3
ALL = 0xFFFFFFFF
FUNCTIONS = sorted(
    set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', Path(pynvml.__file__).read_text()))
    - {"nvmlDeviceGetFieldValues"}
)
DOUBLE, UINT, ULONGLONG = 0, 1, 3


def build_library(folder: Path) -> Path:
    return build(folder / "libnvidia-ml.so.1", FUNCTIONS, NOT_SUPPORTED)


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-1111-2222-3333-444444444444"


def bus_id(index: int) -> str:
    return f"0000:{0x10 + index:02x}:00.0"


class Nvml(Script):
    """``count`` GPUs at 300 W; NVML lists them in the reverse of the order in which CUDA counts them."""

    def __init__(self, path: Path, count: int = 2) -> None:
        super().__init__(path)
        self.count = count
        self.say("nvmlInitWithFlags", 0, "log")
        self.say("nvmlShutdown", 0, "log")
        self.say("nvmlDeviceGetFieldValues", 0)
        self.say("nvmlDeviceGetCount_v2", 0, out(0, struct.pack("I", count)))
        self.say("nvmlSystemGetDriverVersion", 0, out(0, b"580.0\0"))
        self.say("nvmlSystemGetNVMLVersion", 0, out(0, b"13.580.0\0"))
        for index in range(count):
            self.say("nvmlDeviceGetHandleByIndex_v2", 0, f"a0={count - 1 - index}", self._pointer(1, index))
            self.say("nvmlDeviceGetUUID", 0, self._of(index), out(1, uuid(index).encode() + b"\0"))
            pci = (
                b"\0" * 16 + struct.pack("5I", 0, 0x10 + index, 0, 0, 0) + f"00000000:{0x10 + index:02X}:00.0".encode()
            )
            self.say("nvmlDeviceGetPciInfo_v3", 0, self._of(index), out(1, pci + b"\0"))
            self.say("nvmlDeviceGetName", 0, self._of(index), out(1, b"Stand-in\0"))
            self.number("nvmlDeviceGetTemperature", index, 41)
            self.number("nvmlDeviceGetClockInfo", index, 1980)
            self.say(
                "nvmlDeviceGetMemoryInfo", 0, self._of(index), out(1, struct.pack("3Q", 1 << 37, 1 << 36, 4 << 30))
            )
            self.say(
                "nvmlDeviceGetRemappedRows",
                0,
                self._of(index),
                *(out(n, struct.pack("I", 0)) for n in (1, 2, 3, 4)),
            )
            self.say("nvmlDeviceGetCurrentClocksEventReasons", 0, self._of(index), out(1, struct.pack("Q", 0)))
            self.field(index, 186, 300_000, kind=UINT)
            self.field(index, 82, 38, kind=UINT)
            for number in (3, 4, 74, 75, 94, 269, 270, 271):
                self.field(index, number, 0)
            self.field(index, 83, 1_000_000)
            self.field(index, 91, 18, kind=UINT)
            for number in (138, 139, 161, 162, 163):
                self.field(index, number, 1000 if number < 140 else 0, scope=ALL)
        self.write()

    def field(
        self,
        index: int,
        number: int,
        value: float,
        *,
        scope: int = 0,
        kind: int = ULONGLONG,
        status: int = 0,
        at: int = 0,
    ) -> None:
        """GPU ``index``'s field ``number``; ``at`` is its time stamp in us."""
        packed = struct.pack("d", value) if kind == DOUBLE else struct.pack("Q", int(value))
        words = [self._of(index), f"a1={number}", f"a2={scope}", out(3, struct.pack("q", at))]
        self.say("field", status, *words, out(4, struct.pack("I", kind)), out(5, packed))

    def number(self, call: str, index: int, value: int) -> None:
        """Set the answer of a call of the form (handle, selector, unsigned *) for GPU ``index``."""
        self.say(call, 0, self._of(index), out(2, struct.pack("I", value)))

    @staticmethod
    def _of(index: int) -> str:
        return f"a0={handle(index)}"

    @staticmethod
    def _pointer(argument: int, index: int) -> str:
        return out(argument, struct.pack("Q", handle(index)))
