"""Telemetry source for NVIDIA GPUs through NVML (package nvidia-ml-py, module pynvml).

Most values come from one ``nvmlDeviceGetFieldValues`` call per GPU, whose answer has a status per field. Drivers
differ in which fields they have and whether NVLink counters are per link or for the GPU, so at the start the source
chooses for each quantity the first of its *recipes* that the driver answers; ``hardware`` reports the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from harness.telemetry.source import Gpu, Sample, Unavailable, Value, plain_bus_id, plain_uuid

Part = tuple[int, int]
"""A field's number in NVML's ABI and its scope: 0, a link, or ALL."""

ALL = 0xFFFFFFFF
_MOST_LINKS = 18
_ENERGY, _LINK_COUNT = 83, 91

# name -> (factor to the unit of FIELDS, recipes). Numbers, since older pynvml lacks names for newer fields.
_PLAIN: dict[str, tuple[float, tuple[int, ...]]] = {
    "power": (1e-3, (186, 185)),  # instant, else averaged over a second
    "temperature_memory": (1, (82,)),
    "energy": (1e-3, (_ENERGY,)),
    "ecc_corrected": (1, (3,)),  # volatile: since the driver was loaded; the aggregate ones are other fields
    "ecc_uncorrected": (1, (4,)),
    "pcie_replays": (1, (94,)),
    "violation_power": (1, (74,)),
    "violation_thermal": (1, (75,)),
    "violation_thermal_software": (1, (269,)),
    "violation_thermal_hardware": (1, (270,)),
    "violation_power_brake": (1, (271,)),
}
_LINKS: dict[str, tuple[float, tuple[int, ...], int]] = {  # totals first, then the field to add up over links
    "link_tx": (1024, (), 138),
    "link_rx": (1024, (), 139),
    "link_crc_errors": (1, (45,), 163),
    "link_replays": (1, (52,), 161),
    "link_recoveries": (1, (59,), 162),
    "link_ecc_errors": (1, (160,), 0),
}
_REASONS = {
    "throttle_power": 0x04,
    "throttle_power_brake": 0x80,
    "throttle_hardware": 0x08,
    "throttle_thermal": 0x20 | 0x40,
}
_CORE, _SM_CLOCK, _MEMORY_CLOCK = 0, 1, 2
_GAUGES: dict[str, tuple[str, tuple[int, ...]]] = {
    "temperature_core": ("nvmlDeviceGetTemperature", (_CORE,)),
    "clock_compute": ("nvmlDeviceGetClockInfo", (_SM_CLOCK,)),
    "clock_memory": ("nvmlDeviceGetClockInfo", (_MEMORY_CLOCK,)),
}


def open_source(gpus: Sequence[Gpu]) -> NvmlSource:
    """Return the source for ``gpus``. Raises Unavailable if the package, library, driver or device is missing."""
    try:
        import pynvml
    except ImportError:
        raise Unavailable("the package nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unavailable(f"nvmlInit: {error}") from None
    return NvmlSource(pynvml, gpus)


class NvmlSource:
    """An initialised NVML and the handles of the requested GPUs."""

    name = "nvml"
    fields = (*_PLAIN, *_LINKS, *_GAUGES, *_REASONS, "memory_used", "remapped_rows")

    def __init__(self, nvml: Any, gpus: Sequence[Gpu]) -> None:
        self.doing = ""
        self._nvml = nvml
        self._handles: dict[str, Any] = {}
        self._missing: dict[str, str] = {}
        self._recipes: dict[str, dict[str, tuple[Part, ...] | str]] = {}
        count = self._call("nvmlDeviceGetCount")
        if not count:
            self.close()
            raise Unavailable("NVML sees no device")
        known = [self._identity(index) for index in range(count)]
        for gpu in gpus:
            try:
                handle = self._find(gpu, known)
                self._recipes[gpu.uuid] = self._choose(handle)
                self._handles[gpu.uuid] = handle
            except Unavailable as error:
                self._missing[gpu.uuid] = str(error)

    def hardware(self) -> Mapping[str, Any]:
        """Return driver and NVML version; per GPU its name, VBIOS, MIG and ECC mode, limits, links and peers."""
        return {
            "library": self._answers({"nvml": ("nvmlSystemGetNVMLVersion",)}),
            "driver": self._answers({"version": ("nvmlSystemGetDriverVersion",)}),
            "gpus": {uuid: self._describe(uuid, handle) for uuid, handle in self._handles.items()}
            | {uuid: {"unavailable": {"all": reason}} for uuid, reason in self._missing.items()},
        }

    def read(self, uuid: str) -> Sample:
        """Return a sample of one GPU: for every field its value, or the reason why it has none."""
        sample = Sample()
        if uuid in self._missing:
            sample.unavailable = dict.fromkeys(self.fields, self._missing[uuid])
            return sample
        handle = self._handles[uuid]
        self._read_fields(handle, self._recipes[uuid], sample)
        for name, (call, arguments) in _GAUGES.items():
            self._put(sample, name, partial(self._call, call, handle, *arguments))
        self._put(sample, "memory_used", lambda: self._call("nvmlDeviceGetMemoryInfo", handle).used)
        self._put(sample, "remapped_rows", lambda: sum(self._call("nvmlDeviceGetRemappedRows", handle)[:2]))
        self._read_reasons(handle, sample)
        return sample

    def close(self) -> None:
        """Shut NVML down."""
        try:
            self._call("nvmlShutdown")
        except Unavailable:
            return  # it is shut down already

    # -- fields ----------------------------------------------------------------------------------------------------

    def _read_fields(self, handle: Any, recipes: Mapping[str, tuple[Part, ...] | str], sample: Sample) -> None:
        parts = list(
            dict.fromkeys(part for recipe in recipes.values() if not isinstance(recipe, str) for part in recipe)
        )
        try:
            answers = self._field_values(handle, parts)
        except Unavailable as error:
            answers = dict.fromkeys(parts, (str(error), 0))
        for name, recipe in recipes.items():
            factor = (_PLAIN.get(name) or _LINKS[name])[0]
            if isinstance(recipe, str):
                sample.unavailable[name] = recipe
                continue
            values = [answers[part][0] for part in recipe]
            problem = next((each for each in values if isinstance(each, str)), None)
            if problem is None and len(values) > 1 and factor != 1 and len(set(values)) == 1 and values[0]:
                problem = "all links report the same value: cannot distinguish a value of each link from one of the GPU"
            if problem is None:
                total = sum(each for each in values if not isinstance(each, str))
                sample.values[name] = total if factor == 1 else total * factor
            else:
                sample.unavailable[name] = problem
        sample.stamp = answers.get((_ENERGY, 0), ("", 0))[1] or None

    def _choose(self, handle: Any) -> dict[str, tuple[Part, ...] | str]:
        """Return name -> the first recipe that the driver answers, or the reason why it answers none."""
        candidates: dict[str, list[tuple[Part, ...]]] = {
            name: [((number, 0),) for number in numbers] for name, (_, numbers) in _PLAIN.items()
        }
        count = self._field_values(handle, [(_LINK_COUNT, 0)])[_LINK_COUNT, 0][0]
        links = range(min(int(count), _MOST_LINKS)) if not isinstance(count, str) else range(0)
        for name, (_, totals, per_link) in _LINKS.items():
            candidates[name] = [((number, 0),) for number in totals]
            if per_link and links:
                candidates[name] += [((per_link, ALL),), tuple((per_link, link) for link in links)]
        parts = list(dict.fromkeys(part for recipes in candidates.values() for recipe in recipes for part in recipe))
        answers = self._field_values(handle, parts)
        chosen: dict[str, tuple[Part, ...] | str] = {}
        for name, recipes in candidates.items():
            good = (r for r in recipes if not any(isinstance(answers[part][0], str) for part in r))
            reasons = [answers[r[0]][0] for r in recipes]
            chosen[name] = next(good, None) or str(reasons[0] if reasons else f"no NVLink: link count is {count}")
        return chosen

    def _field_values(self, handle: Any, parts: Sequence[Part]) -> dict[Part, tuple[Value | str, int]]:
        """Return part -> (value, or the reason why there is none; time of the measurement in us, or 0)."""
        if not parts:
            return {}
        answers = self._call("nvmlDeviceGetFieldValues", handle, list(parts))
        return {part: (self._value(answer), int(answer.timestamp)) for part, answer in zip(parts, answers, strict=True)}

    def _value(self, answer: Any) -> Value | str:
        """Return a field's value, of the type that the answer names; its status in words if that is not success."""
        if answer.nvmlReturn:
            return self._message(self._nvml.NVMLError(answer.nvmlReturn))
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        if not 0 <= answer.valueType < len(members):
            return f"a value of unknown type {answer.valueType}"
        value: Value = getattr(answer.value, members[answer.valueType])
        return value

    def _read_reasons(self, handle: Any, sample: Sample) -> None:
        """Read the reasons for which clocks are limited now. The call was renamed; pynvml before 12.535 has only the
        old name."""
        new = "nvmlDeviceGetCurrentClocksEventReasons"
        call = new if hasattr(self._nvml, new) else "nvmlDeviceGetCurrentClocksThrottleReasons"
        try:
            active = self._call(call, handle)
        except Unavailable as error:
            sample.unavailable |= dict.fromkeys(_REASONS, str(error))
        else:
            sample.values |= {name: bool(active & bits) for name, bits in _REASONS.items()}

    # -- hardware --------------------------------------------------------------------------------------------------

    def _find(self, gpu: Gpu, known: Sequence[tuple[Any, str, tuple[int, int, int, int] | None]]) -> Any:
        """Return the handle of ``gpu``, found by its uuid; by its bus id if NVML reports no uuid, and for a part of a
        GPU (MIG), whose power and links are those of the whole GPU."""
        wanted, bus_id = plain_uuid(gpu.uuid), plain_bus_id(gpu.bus_id)
        by_bus = wanted.startswith("mig")
        matches = [
            handle
            for handle, uuid, bus in known
            if handle is not None and (uuid == wanted or ((by_bus or not uuid) and bus is not None and bus == bus_id))
        ]
        if len(matches) != 1:
            raise Unavailable(f"NVML has {len(matches) or 'no'} device with uuid {gpu.uuid} or at {gpu.bus_id}")
        return matches[0]

    def _identity(self, index: int) -> tuple[Any, str, tuple[int, int, int, int] | None]:
        """Return (handle, plain uuid, plain bus id) of NVML's device ``index``; None, "" and None for unknown ones."""
        try:
            handle = self._call("nvmlDeviceGetHandleByIndex", index)
        except Unavailable:  # lost, or not accessible: if it was requested, it is reported as missing
            return None, "", None
        try:
            uuid = plain_uuid(_text(self._call("nvmlDeviceGetUUID", handle)))
        except Unavailable:
            uuid = ""
        try:
            return handle, uuid, plain_bus_id(_text(self._call("nvmlDeviceGetPciInfo", handle).busId))
        except Unavailable:
            return handle, uuid, None

    def _describe(self, uuid: str, handle: Any) -> dict[str, Any]:
        facts = self._answers(
            {
                "name": ("nvmlDeviceGetName", handle),
                "vbios": ("nvmlDeviceGetVbiosVersion", handle),
                "firmware": ("nvmlDeviceGetInforomImageVersion", handle),
                "partition": ("nvmlDeviceGetMigMode", handle),
                "ecc": ("nvmlDeviceGetEccMode", handle),
                "power_limit_mw": ("nvmlDeviceGetEnforcedPowerLimit", handle),
                "persistence": ("nvmlDeviceGetPersistenceMode", handle),
                "remapped_rows": ("nvmlDeviceGetRemappedRows", handle),
            }
        )
        peers = {
            other: self._answers({"level": ("nvmlDeviceGetTopologyCommonAncestor", handle, peer)})
            for other, peer in self._handles.items()
            if other != uuid
        }
        recipes = {
            name: recipe
            if isinstance(recipe, str)
            else "+".join(f"{number}@{'all' if scope == ALL else scope}" for number, scope in recipe)
            for name, recipe in self._recipes[uuid].items()
        }
        return {**facts, "topology": peers, "recipes": recipes}

    def _answers(self, questions: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Return the answers of the calls by name, and under ``unavailable`` the reasons of the calls that failed."""
        answers: dict[str, Any] = {}
        for name, (call, *arguments) in questions.items():
            try:
                answer = self._call(call, *arguments)
            except Unavailable as error:
                answers.setdefault("unavailable", {})[name] = str(error)
            else:
                answers[name] = list(answer) if isinstance(answer, (list, tuple)) else _text(answer)
        return answers

    # -- calls -----------------------------------------------------------------------------------------------------

    def _put(self, sample: Sample, name: str, read: Callable[[], Any]) -> None:
        try:
            sample.values[name] = read()
        except Unavailable as error:
            sample.unavailable[name] = str(error)

    def _call(self, call: str, *arguments: Any) -> Any:
        """Call NVML and return its answer. Raises Unavailable with NVML's message if the call fails."""
        self.doing = call
        try:
            return getattr(self._nvml, call)(*arguments)
        except self._nvml.NVMLError as error:
            raise Unavailable(self._message(error)) from None
        except AttributeError:
            raise Unavailable(f"this pynvml has no {call}") from None

    @staticmethod
    def _message(error: Exception) -> str:
        return f"{error} (NVML error {getattr(error, 'value', '?')})"


def _text(answer: Any) -> Any:
    """Return ``answer`` as text if it is bytes: older pynvml returns bytes where newer returns text."""
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
