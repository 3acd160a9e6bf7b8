"""Measured quantities, under the same name on every kind of GPU.

A *gauge* has a value at any time; a window has its least and greatest value. A *counter* only grows; a window has the
difference. A *state* is on or off; a window has the number of samples in which it was on.

``mark``: the remark on a case in whose window the counter grew or the state was on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "state"]


@dataclass(frozen=True)
class Field:
    """One quantity. ``unit``: the unit to which sources convert it; empty for plain numbers."""

    kind: Kind
    unit: str = ""
    mark: str = ""


_ECC, _LINK, _HOT = "memory error (RAS/ECC)", "link error", "thermal violation"

FIELDS: dict[str, Field] = {
    "power": Field("gauge", "W"),
    "temperature_core": Field("gauge", "°C"),
    "temperature_hotspot": Field("gauge", "°C"),
    "temperature_memory": Field("gauge", "°C"),
    "clock_compute": Field("gauge", "MHz"),
    "clock_memory": Field("gauge", "MHz"),
    "memory_used": Field("gauge", "B"),
    "energy": Field("counter", "J"),
    "ecc_corrected": Field("counter", mark=_ECC),
    "ecc_uncorrected": Field("counter", mark=_ECC),
    "ecc_deferred": Field("counter", mark=_ECC),
    "bad_pages": Field("counter", mark=_ECC),
    "remapped_rows": Field("counter", mark=_ECC),
    "link_tx": Field("counter", "B"),
    "link_rx": Field("counter", "B"),
    "link_crc_errors": Field("counter", mark=_LINK),
    "link_replays": Field("counter", mark=_LINK),
    "link_recoveries": Field("counter", mark=_LINK),
    "link_ecc_errors": Field("counter", mark=_LINK),
    "link_error_status": Field("state", mark=_LINK),
    "pcie_replays": Field("counter", mark=_LINK),
    "violation_power": Field("counter", "ns"),
    "violation_thermal": Field("counter", "ns", mark=_HOT),
    "violation_thermal_software": Field("counter", "ns", mark=_HOT),
    "violation_thermal_hardware": Field("counter", "ns", mark=_HOT),
    "violation_power_brake": Field("counter", "ns"),
    # AMD counts violations in ticks of its accumulation counter, ``violation_ticks``.
    "violation_ticks": Field("counter", "ticks"),
    "violation_ticks_power": Field("counter", "ticks"),
    "violation_ticks_prochot": Field("counter", "ticks", mark=_HOT),
    "violation_ticks_socket": Field("counter", "ticks", mark=_HOT),
    "violation_ticks_regulator": Field("counter", "ticks", mark=_HOT),
    "violation_ticks_memory": Field("counter", "ticks", mark=_HOT),
    "throttle": Field("state"),
    "throttle_power": Field("state"),
    "throttle_power_brake": Field("state"),
    "throttle_hardware": Field("state"),
    "throttle_thermal": Field("state", mark=_HOT),
}
"""Every field that a source may have. ``Source.fields`` names those that exist on its hardware."""
