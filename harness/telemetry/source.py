"""The protocol of a source: what the recorder process asks for samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Value = float | int | bool


class Gpu(Protocol):
    """The part of ``harness.devices.inventory.GpuInfo`` by which a source finds a GPU. Never its place in a list."""

    @property
    def uuid(self) -> str: ...
    @property
    def bus_id(self) -> str: ...


class Unavailable(Exception):  # noqa: N818 - nothing is wrong with the run
    """A source cannot be opened, or a field not be read; the message is the reason that the evidence gets."""


@dataclass
class Sample:
    """One reading of one GPU.

    ``values``: numbers in the units of ``FIELDS``, states as bools. ``unavailable``: why a field has none. ``stamp``:
    the device's own time of the measurement, in any unit; None where it has none.
    """

    values: dict[str, Value] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    stamp: float | None = None


class Source(Protocol):
    """Reads GPUs and never sets anything. Used from one thread of the recorder process, which imports no torch."""

    name: str
    doing: str
    """The library call that was entered last, for the report of one that did not return."""

    @property
    def fields(self) -> Sequence[str]:
        """The names in FIELDS that this kind of hardware has; every sample holds a value or a reason for each."""

    def hardware(self) -> Mapping[str, Any]:
        """What does not change during a run: library, driver, and per GPU name, firmware, partitions, topology."""

    def read(self, uuid: str) -> Sample:
        """A sample of the GPU with this uuid. Raises nothing but what is a bug here."""

    def close(self) -> None:
        """Let go of the library; once."""


def plain_uuid(uuid: str) -> str:
    """A GPU's uuid without the prefix, dashes and case in which libraries differ.

    torch's ROCm build shows the sixteen characters of HIP's uuid as the bytes that they are, 32 digits long.
    """
    text = uuid.lower().removeprefix("gpu-").replace("-", "")
    try:
        decoded = bytes.fromhex(text).decode("ascii") if len(text) == 32 else ""
    except ValueError:
        return text
    return decoded if len(decoded) == 16 and all(digit in "0123456789abcdef" for digit in decoded.lower()) else text


def plain_bus_id(bus_id: str) -> tuple[int, int, int, int] | None:
    """(domain, bus, device, function) of ``0000:c1:00.0``, in any of its spellings; None when it is none."""
    try:
        *domain, bus, last = bus_id.split(":")
        device, _, function = last.partition(".")
        return int(domain[0], 16) if domain else 0, int(bus, 16), int(device, 16), int(function or "0", 16)
    except (ValueError, IndexError):
        return None
