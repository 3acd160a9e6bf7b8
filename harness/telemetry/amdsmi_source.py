"""Telemetry source for AMD GPUs through amdsmi, of ROCm 6.0 to 7.

Renamed keys and missing calls are detected in the library's answers, never derived from its version.
GPUs are found by HIP's uuid, else by bus id: amdsmi's own order is not HIP's, and amdsmi ignores HIP_VISIBLE_DEVICES.
``amdsmi_values`` interprets its answers.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.telemetry import amdsmi_values as values
from harness.telemetry.source import Gpu, Sample, Unavailable, Value, plain_bus_id, plain_uuid

_SLOW = 0.02
"""Seconds. A call that takes longer is made so rarely that it takes at most a tenth of the time."""
_SINGLE: tuple[tuple[str, str, Callable[[Any], Value]], ...] = (
    ("amdsmi_get_power_info", "power", values.power),
    ("amdsmi_get_gpu_vram_usage", "memory_used", values.memory),
    ("amdsmi_get_gpu_bad_page_info", "bad_pages", values.pages),
    ("amdsmi_gpu_xgmi_error_status", "link_error_status", values.xgmi_error),
)


def open_source(gpus: Sequence[Gpu]) -> AmdsmiSource:
    """Return the source for ``gpus``. Raises Unavailable if the package, library, permission or GPU is missing."""
    amdsmi = _import()
    try:
        amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
    except _failures(amdsmi) as error:
        raise Unavailable(f"amdsmi_init: {_message(error)}") from None
    source = AmdsmiSource(amdsmi)
    try:
        source.find(gpus)
    except Unavailable:
        source.close()
        raise
    return source


class AmdsmiSource:
    """An initialised amdsmi, and the handles of the requested GPUs."""

    name = "amdsmi"
    fields = (
        *("power", "energy", "clock_compute", "clock_memory", "memory_used", "bad_pages"),
        *(*values.METRICS, *values.ECC, *values.LINKS, "link_ecc_errors", "link_error_status"),
        *("throttle", *values.ACTIVE),
    )

    def __init__(self, amdsmi: ModuleType) -> None:
        self.doing = ""
        self._amdsmi: Any = amdsmi
        self._handles: dict[str, Any] = {}
        self._missing: dict[str, str] = {}
        self._links: dict[tuple[str, str], tuple[int, ...]] = {}
        self._due: dict[str, tuple[float, str]] = {}

    def find(self, gpus: Sequence[Gpu]) -> None:
        """Find the handle of each GPU. Raises Unavailable if amdsmi sees no GPU at all."""
        handles = self._call("amdsmi_get_processor_handles")
        if not handles:
            raise Unavailable(
                "amdsmi sees no GPU (0 handles): no permission for /dev/kfd and /dev/dri, or another libamd_smi"
            )
        known = [(handle, *self._identity(handle)) for handle in handles]
        for gpu in gpus:
            wanted, bus_id = plain_uuid(gpu.uuid), plain_bus_id(gpu.bus_id)
            matches = [handle for handle, uuid, _ in known if uuid and uuid == wanted]
            # Partitions of a GPU have the same bus id except for its function, which HIP does not report.
            matches = matches or [
                h for h, _, bus in known if bus is not None and bus_id is not None and bus[:3] == bus_id[:3]
            ]
            if len(matches) != 1:
                self._missing[gpu.uuid] = (
                    f"amdsmi has {len(matches) or 'no'} GPU with uuid {gpu.uuid} or at {gpu.bus_id}"
                )
            elif partition := self._partition(matches[0]):
                self._missing[gpu.uuid] = f"partition {partition} of a GPU: partition 0 reports its measurements"
            else:
                self._handles[gpu.uuid] = matches[0]

    def hardware(self) -> Mapping[str, Any]:
        """Return library and driver version; per GPU firmware, partition modes and topology, and the metrics table as
        raw bytes if amdsmi cannot read it."""
        library = self._answers({"amdsmi": ("amdsmi_get_lib_version",)})
        library["package"] = getattr(self._amdsmi, "__version__", "unknown")
        driver: dict[str, Any] = {}
        for handle in self._handles.values():  # one driver serves them all
            driver = self._answers({"driver": ("amdsmi_get_gpu_driver_info", handle)})
        return {
            "library": library,
            "driver": driver.get("driver", driver),
            "gpus": {uuid: self._describe(uuid, handle) for uuid, handle in self._handles.items()}
            | {uuid: {"unavailable": {"all": reason}} for uuid, reason in self._missing.items()},
        }

    def read(self, uuid: str) -> Sample:
        """Return a sample of one GPU: for every field its value, or the reason why it has none."""
        sample = Sample()
        if uuid in self._missing:
            sample.unavailable = dict.fromkeys(self.fields, self._missing[uuid])
            return sample
        query = partial(self._look, sample, self._handles[uuid])
        table = query("amdsmi_get_gpu_metrics_info", [*values.METRICS, *values.LINKS, "throttle"])
        if table is not None:
            values.put_all(sample, values.METRICS, table)
            for name, key in values.LINKS.items():
                values.put(sample, name, self._link_bytes, (uuid, name), table.get(key))
            values.put(sample, "throttle", values.state, [table.get("throttle_status")], "throttle_status")
        energy = query("amdsmi_get_energy_count", ["energy"], values.energy)
        for call, name, read in _SINGLE:
            query(call, [name], read)
        ecc = query("amdsmi_get_gpu_total_ecc_count", values.ECC)
        if ecc is not None:
            values.put_all(sample, values.ECC, ecc)
        query("amdsmi_get_gpu_ecc_count", ["link_ecc_errors"], values.errors, self._amdsmi.AmdSmiGpuBlock.XGMI_WAFL)
        clocks = self._amdsmi.AmdSmiClkType
        query("amdsmi_get_clock_info", ["clock_compute"], values.clock, clocks.GFX)
        query("amdsmi_get_clock_info", ["clock_memory"], values.clock, clocks.MEM)
        self._read_violations(uuid, query, sample)
        self._read_temperatures(query, sample)
        table, energy = table or {}, energy or {}
        sample.stamp = values.stamp(
            [(table, "firmware_timestamp"), (energy, "timestamp"), (table, "system_clock_counter")]
        )
        return sample

    def close(self) -> None:
        """Shut amdsmi down."""
        with contextlib.suppress(Unavailable):  # it is shut down already
            self._call("amdsmi_shut_down")

    # -- parts of a sample -------------------------------------------------------------------------------------------

    def _look(
        self,
        sample: Sample,
        handle: Any,
        call: str,
        names: Iterable[str],
        read: Callable[[Any], Value] | None = None,
        *arguments: Any,
    ) -> Any:
        """Return the answer of a call; with ``read``, also set the fields ``names`` to ``read(answer)``.

        If the call fails, returns None and records the reason for all ``names``.
        """
        try:
            answer = self._call(call, handle, *arguments)
        except Unavailable as error:
            sample.unavailable |= dict.fromkeys(names, str(error))
            return None
        if read is not None:
            for name in names:
                values.put(sample, name, read, answer)
        return answer

    def _link_bytes(self, key: tuple[str, str], counters: Any) -> int:
        """Return the sum over the links that have a counter. Raises Unavailable if these links have changed: the sum
        would jump."""
        by_link = values.links(counters)
        first = self._links.setdefault(key, tuple(by_link))
        if tuple(by_link) != first:
            raise Unavailable(f"the XGMI links with a counter were {list(first)} and are {list(by_link)}")
        return sum(by_link.values())

    def _read_violations(self, uuid: str, query: Callable[..., Any], sample: Sample) -> None:
        """Read the violation counters of MI300 and newer. amdsmi may compare two readings 100 ms apart, so a slow call
        is not made for every sample."""
        due, reason = self._due.get(uuid, (0.0, ""))
        if time.monotonic() < due:
            sample.unavailable |= dict.fromkeys(values.ACTIVE, reason)
            return
        missing = {name: key for name, key in values.VIOLATIONS.items() if name not in sample.values}
        began = time.monotonic()
        status = query("amdsmi_get_violation_status", [*missing, *values.ACTIVE])
        if (took := time.monotonic() - began) > _SLOW:
            wait = 10 * took * len(self._handles)
            self._due[uuid] = began + wait, f"{self.doing} takes {took:.2f} s and is made every {wait:.1f} s"
        if status is not None:
            values.put_all(sample, missing, status)
            for name, keys in values.ACTIVE.items():
                values.put(sample, name, values.state, [status.get(key) for key in keys], keys[0])

    def _read_temperatures(self, query: Callable[..., Any], sample: Sample) -> None:
        """Read each temperature that the table lacks from its sensor, in degrees; amdsmi's documentation claims
        thousandths."""
        kinds, current = self._amdsmi.AmdSmiTemperatureType, self._amdsmi.AmdSmiTemperatureMetric.CURRENT
        for name, kind in (("temperature_hotspot", kinds.HOTSPOT), ("temperature_memory", kinds.VRAM)):
            if name not in sample.values:
                query("amdsmi_get_temp_metric", [name], values.degrees, kind, current)

    # -- hardware ----------------------------------------------------------------------------------------------------

    def _identity(self, handle: Any) -> tuple[str, tuple[int, int, int, int] | None]:
        """Return (plain HIP uuid or "", bus id or None). amdsmi_get_gpu_device_uuid is another uuid, unknown to HIP."""
        uuid, bus_id = "", None
        with contextlib.suppress(Unavailable):
            hip_uuid = str(self._call("amdsmi_get_gpu_enumeration_info", handle)["hip_uuid"])
            uuid = "" if hip_uuid in ("", "N/A") else plain_uuid(hip_uuid)
        with contextlib.suppress(Unavailable):
            bus_id = plain_bus_id(str(self._call("amdsmi_get_gpu_device_bdf", handle)))
        return uuid, bus_id

    def _partition(self, handle: Any) -> int:
        """Return the number of a handle's partition; 0 also if the partition is unknown."""
        try:
            return int(values.number(self._call("amdsmi_get_gpu_kfd_info", handle), "current_partition_id"))
        except Unavailable:
            pass  # before ROCm 6.4: it is the function of the bus id, if the GPU is partitioned
        try:
            whole = self._call("amdsmi_get_gpu_compute_partition", handle) in ("SPX", "", "N/A")
        except Unavailable:
            return 0
        bus_id = self._identity(handle)[1]
        return 0 if whole or bus_id is None else bus_id[3]

    def _describe(self, uuid: str, handle: Any) -> dict[str, Any]:
        facts = self._answers(
            {
                "asic": ("amdsmi_get_gpu_asic_info", handle),
                "vbios": ("amdsmi_get_gpu_vbios_info", handle),
                "firmware": ("amdsmi_get_fw_info", handle),
                "partition": ("amdsmi_get_gpu_compute_partition", handle),
                "memory_partition": ("amdsmi_get_gpu_memory_partition", handle),
                "ras": ("amdsmi_get_gpu_ras_feature_info", handle),
                "xgmi": ("amdsmi_get_xgmi_info", handle),
                "links": ("amdsmi_get_gpu_xgmi_link_status", handle),
                "bus_id": ("amdsmi_get_gpu_device_bdf", handle),
            }
        )
        if isinstance(facts.get("asic"), dict):
            facts["asic"].pop("asic_serial", None)  # evidence names no machine
        facts["topology"] = {
            other: self._answers({"link": ("amdsmi_topo_get_link_type", handle, peer)})
            for other, peer in self._handles.items()
            if other != uuid
        }
        try:
            self._call("amdsmi_get_gpu_metrics_info", handle)
        except Unavailable as error:
            facts["metrics"] = {"unavailable": str(error), **values.raw_metrics(str(facts.get("bus_id", "")))}
        return facts

    def _answers(self, questions: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Return the answers of the calls by name, and under ``unavailable`` the reasons of the calls that failed."""
        answers: dict[str, Any] = {}
        for name, (call, *arguments) in questions.items():
            try:
                answers[name] = values.plain(self._call(call, *arguments))
            except Unavailable as error:
                answers.setdefault("unavailable", {})[name] = str(error)
        return answers

    def _call(self, call: str, *arguments: Any) -> Any:
        """Call amdsmi and return its answer. Raises Unavailable with amdsmi's message if the call fails."""
        self.doing = call
        function = getattr(self._amdsmi, call, None)
        if function is None:
            raise Unavailable(f"this amdsmi has no {call}")
        try:
            return function(*arguments)
        except _failures(self._amdsmi) as error:
            raise Unavailable(_message(error)) from None


# -- the package -----------------------------------------------------------------------------------------------------


def _import() -> ModuleType:
    """Import amdsmi: ROCm's own copy, which fits its library, in preference to an installed one."""
    official = Path(os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm") / "share" / "amd_smi"
    if (official / "amdsmi").is_dir():
        sys.path.insert(0, str(official))
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            import amdsmi
    except ModuleNotFoundError as error:
        raise Unavailable(f"the package amdsmi cannot be imported: {error}") from None
    except (KeyError, OSError, AttributeError, ImportError) as error:
        # A missing library is KeyError('libamd_smi.so'), and two lines that the package prints.
        words = " ".join(printed.getvalue().split())
        raise Unavailable(
            f"import amdsmi: {type(error).__name__}: {error}" + (f" ({words})" if words else "")
        ) from None
    module: ModuleType = amdsmi
    return module


def _failures(amdsmi: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions that amdsmi's calls raise: its own, and those of its Python code on unexpected answers."""
    return (amdsmi.amdsmi_exception.AmdSmiException, AttributeError, KeyError, TypeError, ValueError)


def _message(error: Exception) -> str:
    """Return the error in one line: ``AMDSMI_STATUS_NO_PERM (10)`` if amdsmi names a status, else type and text."""
    code = getattr(error, "err_code", None)
    if code is not None:
        return f"{str(getattr(error, 'err_info', '')).partition(' - ')[0] or type(error).__name__} ({code})"
    return " ".join(f"{type(error).__name__}: {error}".split())
