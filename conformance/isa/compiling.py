"""The rank function that compiles a call of the catalogue for a GPU that is not there, and reads the code."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from conformance.isa.catalogue import CALLS
from fixtures.worker import Env
from harness.devices.absent import Absent
from harness.isa.compile_only import target

ARCHS = {"gfx942": ("hip", "gfx942"), "gfx950": ("hip", "gfx950"), "sm_90": ("cuda", 90)}
"""Targets of ``harness.isa.compile_only``."""


def compile_call(env: Env, payload: Mapping[str, Any]) -> list[dict[str, str]]:
    """Compile the kernels of the call ``payload["call"]`` for ``payload["arch"]``; every rank of the group calls it.

    Returns kernel, listing and resource usage of each on rank 0, and nothing on the others. The kernels do not run, so
    results are not looked at. HarnessError if the call raised before it launched anything.
    """
    with target(*ARCHS[payload["arch"]]) as driver:
        twin = copy.copy(env)
        twin.iris, twin.context, twin.image = env.iris, env.context, env.image
        twin.device = Absent(driver, machine_code=1)  # type: ignore[assignment]
        twin.begin()
        CALLS[payload["call"]].run(twin)
        launches = {launch.hash: launch for launch in twin.launched()}
        if env.rank:
            return []
        return [
            {"kernel": launch.kernel, "listing": launch.listing, "usage": getattr(launch, "usage", "")}
            for launch in launches.values()
        ]
