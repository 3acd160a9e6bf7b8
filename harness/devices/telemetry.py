"""Command that shows the telemetry available on this machine: ``python -m harness.devices.telemetry --device rocm``.

It samples the visible GPUs for some seconds, as a run does, and prints every field with its value or the reason why it
has none. Exit status 0 if at least one GPU was read, 1 if none was, 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.devices import inventory
from harness.devices.table import gpu_kind, gpu_kinds
from harness.errors import UsageError
from harness.telemetry import FIELDS, Watch

START_LIMIT_S = 30.0
"""Seconds in which the recorder's process has to start: those to sample count from its first line on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.devices.telemetry", description="Show the telemetry that is available on this machine."
    )
    watched = sorted(kind.name for kind in gpu_kinds() if kind.telemetry is not None)
    parser.add_argument("--device", choices=watched, required=True)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds to sample (default: 3)")
    parser.add_argument("--rate", type=float, default=10.0, help="samples per second (default: 10)")
    parser.add_argument("--json", action="store_true", help="print all values as JSON")
    options = parser.parse_args(arguments)
    if not 0 < options.rate <= 1000 or not 0 < options.seconds <= 3600:
        parser.error(
            "expected --rate above 0 and up to 1000, --seconds above 0 and up to 3600,"
            f" got --rate {options.rate:g}, --seconds {options.seconds:g}"
        )
    try:
        gpus = inventory.visible(options.device)
    except UsageError as error:
        print(f"python -m harness.devices.telemetry: {error}", file=sys.stderr)
        return 2
    library = gpu_kind(options.device).telemetry
    assert library is not None  # sanity check: --device has no other choices
    with Watch(library, gpus, options.rate) as watch:
        watch.wait(0, START_LIMIT_S)
        due = time.monotonic() + options.seconds
        while watch.ended is None and time.monotonic() < due:
            watch.wait(watch.lines, due - time.monotonic())
        hardware, windows = watch.hardware, watch.whole()
    if options.json:
        reports = {window.gpu: window.samples or window.reason for window in windows}
        print(json.dumps({"hardware": hardware, "gpus": reports}, indent=1))
    else:
        print("\n".join(f"{key}: {json.dumps((hardware or {}).get(key))}" for key in ("source", "library", "driver")))
        for window in windows:
            print(f"\n{window.gpu}")
            known = (hardware or {}).get("fields", ())
            print("\n".join(_lines(window.samples, known) if window.samples else [f"  unavailable: {window.reason}"]))
    return 0 if any(window.samples and window.samples["gauges"] for window in windows) else 1


def _lines(samples: Mapping[str, Any], known: Sequence[str]) -> Iterator[str]:
    took = f"{1000 * samples['seconds_per_look']:.1f} ms each"
    yield f"  samples {samples['samples']}, {took}, and {samples['repeated']} that repeated the one before"
    for name, field in FIELDS.items():
        if name in samples["gauges"]:
            least, greatest = samples["gauges"][name]
            yield f"  {name:28}{least:g} to {greatest:g} {field.unit}"
        elif name in samples["deltas"]:
            yield f"  {name:28}+{samples['deltas'][name]:g} {field.unit}".rstrip()
        elif name in samples["active"]:
            yield f"  {name:28}on in {samples['active'][name]} samples"
        elif field.kind == "state" and name in known and name not in samples["unavailable"]:
            yield f"  {name:28}off"
        if name in samples["unavailable"]:
            yield f"  {name:28}unavailable: {samples['unavailable'][name]}"
    yield from (f"  {mark}" for mark in samples["marks"])


if __name__ == "__main__":
    sys.exit(main())
