"""The rank function that compiles a call of the catalogue for a GPU that is not there, and judges the code."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from conformance.isa.catalogue import CALLS
from conformance.isa.contract import broken, codes_of, contracts, promises
from conformance.isa.figures import figures_of
from conformance.isa.targets import ARCHS
from fixtures.absent import Absent
from fixtures.worker import Env
from harness.isa.compile_only import target


def compile_call(env: Env, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Compile the kernels of the call ``payload["call"]`` for ``payload["arch"]``. Every rank of the group calls it.

    The result of rank 0 has ``kernels``, each with its figures and listing; ``broken``, what they break of their
    contract; and ``error``, the text of an exception in the call, or "". The kernels do not run, so an exception about
    results means nothing if there are kernels.
    """
    entry = CALLS[payload["call"]]
    with target(*ARCHS[payload["arch"]]) as driver:
        twin = copy.copy(env)
        twin.iris, twin.context, twin.image = env.iris, env.context, env.image
        twin.device = Absent(driver, machine_code=1)  # type: ignore[assignment]
        twin.begin()
        entry.run(twin)
        launches = {launch.hash: launch for launch in twin.launched()}
        error = "" if twin.fault is None else f"{type(twin.fault).__name__}: {twin.fault}"
        if env.rank:
            return {}
        listed = [
            (launch, replace(code, shared=launch.code.shared))
            for launch in launches.values()
            for code in codes_of(launch)
        ]
        return {
            "kernels": [{"figures": figures_of(code), "listing": launch.listing} for launch, code in listed],
            "broken": broken(contracts()[entry.contract], [code for _, code in listed], promises(env.implementation)),
            "error": error,
        }
