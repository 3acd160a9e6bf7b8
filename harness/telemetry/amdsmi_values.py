"""What amdsmi's answers mean: numbers and states out of tables that say "N/A", sentinels, or nothing.

What amdsmi cannot say is the text "N/A" (which is true, as a condition), in older versions the greatest value of the
field's C type; both are taken for no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.telemetry.source import Sample, Unavailable, Value

SYS = Path("/sys")
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
    """Not "N/A", not a bool, not the sentinel of any C type."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value not in _NONE


def number(table: Mapping[str, Any], *keys: str) -> Any:
    """The number under the first of ``keys`` that has one. Unavailable where there is none."""
    for key in keys:
        if is_number(table.get(key)):
            return table[key]
    there = [key for key in keys if key in table]
    raise Unavailable(f"amdsmi says N/A for {there[0]}" if there else f"this amdsmi gives no {' or '.join(keys)}")


def put(sample: Sample, name: str, read: Callable[..., Value], *arguments: Any) -> None:
    """Set a field to what ``read`` gives, or note why it gives nothing."""
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
    """The first time stamp that there is."""
    return next((float(table[key]) for table, key in tables if is_number(table.get(key))), None)


def energy(table: Mapping[str, Any]) -> float:
    """J. The key was renamed in ROCm 6.4; the counter counts ``counter_resolution`` uJ each."""
    resolution = float(number(table, "counter_resolution"))
    if resolution <= 0:
        raise Unavailable(f"the energy counter's resolution is {resolution:g} uJ")
    return float(number(table, "energy_accumulator", "power") * resolution * 1e-6)


def power(table: Mapping[str, Any]) -> float:
    """W, of the whole socket: the current one on MI300 and newer, the averaged one before."""
    return float(number(table, "socket_power", "current_socket_power", "average_socket_power"))


def clock(table: Mapping[str, Any]) -> int:
    """MHz; the key was renamed in ROCm 6.1."""
    return int(number(table, "clk", "cur_clk"))


def degrees(answer: Any) -> int:
    """A sensor's temperature."""
    return int(number({"the sensor": answer}, "the sensor"))


def memory(table: Mapping[str, Any]) -> int:
    """Bytes, from MiB."""
    return int(number(table, "vram_used")) << 20


def pages(answer: Any) -> int:
    """Retired pages: a list, or in ROCm 6.0 a sentence when there is none."""
    if not isinstance(answer, str):
        return len(answer)
    if answer.lower().startswith("no bad page"):
        return 0
    raise Unavailable(f"amdsmi says {answer} for bad pages")


def errors(table: Mapping[str, Any]) -> int:
    """All errors of one block."""
    known = [key for key in ECC.values() if key in table]
    if not known:
        raise Unavailable(f"amdsmi gives no error count of the block, only {', '.join(table) or 'nothing'}")
    return sum(int(number(table, key)) for key in known)


def links(counters: Any) -> dict[int, int]:
    """Bytes by link, from KB, of the links that have a counter."""
    if not isinstance(counters, Sequence) or isinstance(counters, str):
        raise Unavailable("this amdsmi gives no XGMI counters")
    found = {index: int(counter) * 1024 for index, counter in enumerate(counters) if is_number(counter)}
    if not found:
        raise Unavailable("amdsmi says N/A for every XGMI link")
    return found


def xgmi_error(answer: Any) -> bool:
    """Whether links had errors: 0 is none."""
    return state([answer], "the XGMI error status")


def state(answers: Sequence[Any], key: str) -> bool:
    """Whether one of ``answers`` is on; they may be "N/A" instead, which is true as a condition and means nothing."""
    told = [bool(answer) for answer in answers if isinstance(answer, bool) or is_number(answer)]
    if not told:
        raise Unavailable(f"amdsmi says N/A for {key}")
    return any(told)


def raw_metrics(bus_id: str) -> dict[str, Any]:
    """The driver's table as it is, for a library that does not know its version: no guess is made of its content."""
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
    """JSON data: enums by their name, unknown things as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "name") and hasattr(value, "value"):
        return str(value.name)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
