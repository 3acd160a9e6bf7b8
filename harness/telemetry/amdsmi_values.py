"""Interpretation of amdsmi's answers: numbers and states from tables in which values may be missing.

amdsmi reports a missing value as the text "N/A" (which is true as a condition), older versions as the greatest value of
the field's C type. Both are treated as no value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.telemetry.source import Sample, Unavailable, Value

SYS = Path(os.environ.get("IRIS_SYSTEM_ROOT", "/")) / "sys"
_MOST_RAW = 1 << 14
_NONE = {0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}

METRICS = {  # field -> key of amdsmi_get_gpu_metrics_info
    "temperature_core": "temperature_edge",
    "temperature_hotspot": "temperature_hotspot",
    "temperature_memory": "temperature_mem",
    "pcie_replays": "pcie_replay_count_acc",
    "violation_ticks": "accumulation_counter",
    "violation_ticks_power": "ppt_residency_acc",
    "violation_ticks_prochot": "prochot_residency_acc",
    "violation_ticks_socket": "socket_thm_residency_acc",
    "violation_ticks_regulator": "vr_thm_residency_acc",
    "violation_ticks_memory": "hbm_thm_residency_acc",
}
LINKS = {"link_tx": "xgmi_write_data_acc", "link_rx": "xgmi_read_data_acc"}  # of the same table
VIOLATIONS = {  # field -> key of amdsmi_get_violation_status
    "violation_ticks": "acc_counter",
    "violation_ticks_power": "acc_ppt_pwr",
    "violation_ticks_prochot": "acc_prochot_thrm",
    "violation_ticks_socket": "acc_socket_thrm",
    "violation_ticks_regulator": "acc_vr_thrm",
    "violation_ticks_memory": "acc_hbm_thrm",
}
ACTIVE = {  # states of the same table: on when one of the keys is
    "throttle_power": ("active_ppt_pwr",),
    "throttle_thermal": ("active_prochot_thrm", "active_socket_thrm", "active_vr_thrm", "active_hbm_thrm"),
}
ECC = {
    "ecc_corrected": "correctable_count",
    "ecc_uncorrected": "uncorrectable_count",
    "ecc_deferred": "deferred_count",
}


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a number: not "N/A", not a bool, not the greatest value of a C type."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value not in _NONE


def number(table: Mapping[str, Any], *keys: str) -> Any:
    """Return the number under the first of ``keys`` that has one. Raises Unavailable if none has."""
    for key in keys:
        if is_number(table.get(key)):
            return table[key]
    there = [key for key in keys if key in table]
    raise Unavailable(f"amdsmi reports N/A for {there[0]}" if there else f"this amdsmi gives no {' or '.join(keys)}")


def put(sample: Sample, name: str, read: Callable[..., Value], *arguments: Any) -> None:
    """Set a field to the result of ``read``, or record the reason if it raises Unavailable."""
    try:
        sample.values[name] = read(*arguments)
    except Unavailable as error:
        sample.unavailable[name] = str(error)
    else:
        sample.unavailable.pop(name, None)


def put_all(sample: Sample, keys: Mapping[str, str], table: Mapping[str, Any]) -> None:
    """Set each field of ``keys`` to the number under its key."""
    for name, key in keys.items():
        put(sample, name, number, table, key)


def stamp(tables: Iterable[tuple[Mapping[str, Any], str]]) -> float | None:
    """Return the first time stamp that is a number; None if none is."""
    return next((float(table[key]) for table, key in tables if is_number(table.get(key))), None)


def energy(table: Mapping[str, Any]) -> float:
    """Return the energy in J. The key was renamed in ROCm 6.4; one count is ``counter_resolution`` uJ."""
    resolution = float(number(table, "counter_resolution"))
    if resolution <= 0:
        raise Unavailable(f"the energy counter's resolution is {resolution:g} uJ")
    return float(number(table, "energy_accumulator", "power") * resolution * 1e-6)


def power(table: Mapping[str, Any]) -> float:
    """Return the power of the whole socket in W: current on MI300 and newer, averaged before."""
    return float(number(table, "socket_power", "current_socket_power", "average_socket_power"))


def clock(table: Mapping[str, Any]) -> int:
    """Return the clock in MHz; the key was renamed in ROCm 6.1."""
    return int(number(table, "clk", "cur_clk"))


def degrees(answer: Any) -> int:
    """Return a sensor's temperature."""
    return int(number({"the sensor": answer}, "the sensor"))


def memory(table: Mapping[str, Any]) -> int:
    """Return the memory in use in bytes; amdsmi reports MiB."""
    return int(number(table, "vram_used")) << 20


def pages(answer: Any) -> int:
    """Return the number of retired pages. The answer is a list, or in ROCm 6.0 a sentence if there are none."""
    if not isinstance(answer, str):
        return len(answer)
    if answer.lower().startswith("no bad page"):
        return 0
    raise Unavailable(f"amdsmi reports {answer} for bad pages")


def errors(table: Mapping[str, Any]) -> int:
    """Return the number of all errors of one block."""
    known = [key for key in ECC.values() if key in table]
    if not known:
        raise Unavailable(f"amdsmi gives no error count of the block, only {', '.join(table) or 'nothing'}")
    return sum(int(number(table, key)) for key in known)


def links(counters: Any) -> dict[int, int]:
    """Return the bytes by link, of the links that have a counter; amdsmi reports KB."""
    if not isinstance(counters, Sequence) or isinstance(counters, str):
        raise Unavailable("this amdsmi gives no XGMI counters")
    by_link = {index: int(counter) * 1024 for index, counter in enumerate(counters) if is_number(counter)}
    if not by_link:
        raise Unavailable("amdsmi reports N/A for every XGMI link")
    return by_link


def xgmi_error(answer: Any) -> bool:
    """Return whether links had errors: status 0 means none."""
    return state([answer], "the XGMI error status")


def state(answers: Sequence[Any], key: str) -> bool:
    """Return whether one of ``answers`` is on. Answers of "N/A", which is true as a condition, are ignored."""
    states = [bool(answer) for answer in answers if isinstance(answer, bool) or is_number(answer)]
    if not states:
        raise Unavailable(f"amdsmi reports N/A for {key}")
    return any(states)


def raw_metrics(bus_id: str) -> dict[str, Any]:
    """Return the driver's table as raw bytes, for a library that does not know the table's version."""
    path = SYS / "bus" / "pci" / "devices" / bus_id / "gpu_metrics"
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_RAW)
    except OSError as error:
        return {"raw": f"cannot be read: {error.strerror}"}
    if len(raw) < 4:
        return {"raw": raw.hex()}
    return {"size": int.from_bytes(raw[:2], "little"), "format": raw[2], "content": raw[3], "raw": raw.hex()}


def plain(value: Any) -> Any:
    """Return ``value`` as JSON data: enums by their name, other types as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "name") and hasattr(value, "value"):
        return str(value.name)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
