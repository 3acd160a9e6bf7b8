"""NVIDIA GPUs through NVML (package nvidia-ml-py, module pynvml).

Most of it comes from one ``nvmlDeviceGetFieldValues`` call per GPU, whose answer has a status per field. Drivers
differ in which fields they have and whether NVLink counters are per link or for the GPU, so at the start each quantity
takes the first of its *recipes* that the driver answers; ``hardware`` says which.
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
    """The source for ``gpus``. Unavailable, with the reason, when there is no package, library, driver or device."""
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
    """An initialised NVML and the handles of the GPUs that were asked for."""

    name = "nvml"
    fields = (*_PLAIN, *_LINKS, *_GAUGES, *_REASONS, "memory_used", "remapped_rows")

    def __init__(self, nvml: Any, gpus: Sequence[Gpu]) -> None:
        self.doing = ""
        self._nvml = nvml
        self._handles: dict[str, Any] = {}
        self._missing: dict[str, str] = {}
        self._recipes: dict[str, dict[str, tuple[Part, ...] | str]] = {}
        count = self._ask("nvmlDeviceGetCount")
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
        """Driver and NVML version; per GPU its name, VBIOS, MIG and ECC mode, limits, links and peers."""
        return {
            "library": self._told({"nvml": ("nvmlSystemGetNVMLVersion",)}),
            "driver": self._told({"version": ("nvmlSystemGetDriverVersion",)}),
            "gpus": {uuid: self._describe(uuid, handle) for uuid, handle in self._handles.items()}
            | {uuid: {"unavailable": {"all": reason}} for uuid, reason in self._missing.items()},
        }

    def read(self, uuid: str) -> Sample:
        """Every field of one GPU, or why not."""
        sample = Sample()
        if uuid in self._missing:
            sample.unavailable = dict.fromkeys(self.fields, self._missing[uuid])
            return sample
        handle = self._handles[uuid]
        self._read_fields(handle, self._recipes[uuid], sample)
        for name, (call, arguments) in _GAUGES.items():
            self._put(sample, name, partial(self._ask, call, handle, *arguments))
        self._put(sample, "memory_used", lambda: self._ask("nvmlDeviceGetMemoryInfo", handle).used)
        self._put(sample, "remapped_rows", lambda: sum(self._ask("nvmlDeviceGetRemappedRows", handle)[:2]))
        self._read_reasons(handle, sample)
        return sample

    def close(self) -> None:
        """Shut NVML down."""
        try:
            self._ask("nvmlShutdown")
        except Unavailable:
            return  # the library is gone already, which is what was wanted

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
            found = [answers[part][0] for part in recipe]
            problem = next((each for each in found if isinstance(each, str)), None)
            if problem is None and len(found) > 1 and factor != 1 and len(set(found)) == 1 and found[0]:
                problem = "all links give one figure: it cannot be told whether it is theirs or the GPU's"
            if problem is None:
                total = sum(each for each in found if not isinstance(each, str))
                sample.values[name] = total if factor == 1 else total * factor
            else:
                sample.unavailable[name] = problem
        sample.stamp = answers.get((_ENERGY, 0), ("", 0))[1] or None

    def _choose(self, handle: Any) -> dict[str, tuple[Part, ...] | str]:
        """name -> the first recipe that the driver answers, or why it answers none."""
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
        """part -> (value, or why there is none; time in us of the measurement, or 0)."""
        if not parts:
            return {}
        answers = self._ask("nvmlDeviceGetFieldValues", handle, list(parts))
        return {part: (self._value(answer), int(answer.timestamp)) for part, answer in zip(parts, answers, strict=True)}

    def _value(self, answer: Any) -> Value | str:
        """A field's value by its own type; its own status, in words, when that is not success."""
        if answer.nvmlReturn:
            return self._said(self._nvml.NVMLError(answer.nvmlReturn))
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        if not 0 <= answer.valueType < len(members):
            return f"a value of unknown type {answer.valueType}"
        value: Value = getattr(answer.value, members[answer.valueType])
        return value

    def _read_reasons(self, handle: Any, sample: Sample) -> None:
        """Why clocks are held down right now. The call was renamed; pynvml before 12.535 has only the old name."""
        new = "nvmlDeviceGetCurrentClocksEventReasons"
        call = new if hasattr(self._nvml, new) else "nvmlDeviceGetCurrentClocksThrottleReasons"
        try:
            active = self._ask(call, handle)
        except Unavailable as error:
            sample.unavailable |= dict.fromkeys(_REASONS, str(error))
        else:
            sample.values |= {name: bool(active & bits) for name, bits in _REASONS.items()}

    # -- hardware --------------------------------------------------------------------------------------------------

    def _find(self, gpu: Gpu, known: Sequence[tuple[Any, str, tuple[int, int, int, int] | None]]) -> Any:
        """The handle of ``gpu``: by its uuid; by its bus id where NVML tells no uuid, and for a part of a GPU (MIG),
        whose power and links are those of the whole."""
        wanted, bus_id = plain_uuid(gpu.uuid), plain_bus_id(gpu.bus_id)
        by_bus = wanted.startswith("mig")
        found = [
            handle
            for handle, uuid, bus in known
            if handle is not None and (uuid == wanted or ((by_bus or not uuid) and bus is not None and bus == bus_id))
        ]
        if len(found) != 1:
            raise Unavailable(f"NVML has {len(found) or 'no'} device with uuid {gpu.uuid} or at {gpu.bus_id}")
        return found[0]

    def _identity(self, index: int) -> tuple[Any, str, tuple[int, int, int, int] | None]:
        """(handle, plain uuid, plain bus id) of NVML's device ``index``; empty and None where it does not tell."""
        try:
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
        except Unavailable:  # lost, or not ours: a GPU that was asked for is then told as missing
            return None, "", None
        try:
            uuid = plain_uuid(_text(self._ask("nvmlDeviceGetUUID", handle)))
        except Unavailable:
            uuid = ""
        try:
            return handle, uuid, plain_bus_id(_text(self._ask("nvmlDeviceGetPciInfo", handle).busId))
        except Unavailable:
            return handle, uuid, None

    def _describe(self, uuid: str, handle: Any) -> dict[str, Any]:
        told = self._told(
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
            other: self._told({"level": ("nvmlDeviceGetTopologyCommonAncestor", handle, peer)})
            for other, peer in self._handles.items()
            if other != uuid
        }
        recipes = {
            name: recipe
            if isinstance(recipe, str)
            else "+".join(f"{number}@{'all' if scope == ALL else scope}" for number, scope in recipe)
            for name, recipe in self._recipes[uuid].items()
        }
        return {**told, "topology": peers, "recipes": recipes}

    def _told(self, questions: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """The answers, and under ``unavailable`` the reasons where there is none."""
        told: dict[str, Any] = {}
        for name, (call, *arguments) in questions.items():
            try:
                answer = self._ask(call, *arguments)
            except Unavailable as error:
                told.setdefault("unavailable", {})[name] = str(error)
            else:
                told[name] = list(answer) if isinstance(answer, (list, tuple)) else _text(answer)
        return told

    # -- calls -----------------------------------------------------------------------------------------------------

    def _put(self, sample: Sample, name: str, read: Callable[[], Any]) -> None:
        try:
            sample.values[name] = read()
        except Unavailable as error:
            sample.unavailable[name] = str(error)

    def _ask(self, call: str, *arguments: Any) -> Any:
        """Call NVML; Unavailable with what it says when it fails."""
        self.doing = call
        try:
            return getattr(self._nvml, call)(*arguments)
        except self._nvml.NVMLError as error:
            raise Unavailable(self._said(error)) from None
        except AttributeError:
            raise Unavailable(f"this pynvml has no {call}") from None

    @staticmethod
    def _said(error: Exception) -> str:
        return f"{error} (NVML error {getattr(error, 'value', '?')})"


def _text(answer: Any) -> Any:
    """Older pynvml gives bytes where newer gives text."""
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
