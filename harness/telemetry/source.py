"""Protocol of a source, from which the recorder process reads samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Value = float | int | bool


class Gpu(Protocol):
    """The fields of ``harness.devices.gpu_kind.GpuInfo`` by which a source finds a GPU; never its index in a list."""

    @property
    def uuid(self) -> str: ...
    @property
    def bus_id(self) -> str: ...


@dataclass(frozen=True)
class Library:
    """Library that reads a kind of GPU. ``source``: the module with ``open_source(gpus)``, which only the recorder
    process imports. ``module``: the Python module that it needs, of the distribution ``package``."""

    name: str
    source: str
    module: str
    package: str


class Unavailable(Exception):  # noqa: N818 - nothing is wrong with the run
    """A source that cannot be opened, or a field that cannot be read; the evidence records the message as reason."""


@dataclass
class Sample:
    """One reading of one GPU.

    ``values``: numbers in the units of ``FIELDS``, states as bools. ``unavailable``: for fields without a value, the
    reason. ``stamp``: the device's own time of the measurement, in any unit; None if the device has none.
    """

    values: dict[str, Value] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    stamp: float | None = None


class Source(Protocol):
    """Reader of GPUs that never changes a setting. Used by one thread of the recorder process, which imports no
    torch."""

    name: str
    doing: str
    """The library call that was made last, for the report of a call that does not return."""

    @property
    def fields(self) -> Sequence[str]:
        """The names in FIELDS that exist on this kind of hardware; every sample has a value or a reason for each."""

    def hardware(self) -> Mapping[str, Any]:
        """Return the facts that do not change during a run: library, driver, and per GPU its name, firmware, partitions
        and topology."""

    def read(self, uuid: str) -> Sample:
        """Return a sample of the GPU with this uuid. Does not raise, except for a bug of the source."""

    def close(self) -> None:
        """Release the library. Called once."""


def plain_uuid(uuid: str) -> str:
    """Return a GPU's uuid without the prefix, dashes and case in which libraries differ.

    torch's ROCm build shows the bytes of the sixteen characters of HIP's uuid in hexadecimal, 32 digits long.
    """
    text = uuid.lower().removeprefix("gpu-").replace("-", "")
    try:
        decoded = bytes.fromhex(text).decode("ascii") if len(text) == 32 else ""
    except ValueError:
        return text
    return decoded if len(decoded) == 16 and all(digit in "0123456789abcdef" for digit in decoded.lower()) else text


def plain_bus_id(bus_id: str) -> tuple[int, int, int, int] | None:
    """Return (domain, bus, device, function) of a bus id such as ``0000:c1:00.0`` in any spelling; None for other
    text."""
    try:
        *domain, bus, last = bus_id.split(":")
        device, _, function = last.partition(".")
        return int(domain[0], 16) if domain else 0, int(bus, 16), int(device, 16), int(function or "0", 16)
    except (ValueError, IndexError):
        return None
