"""The rank function that records what a call of the catalogue reaches in the library; it launches no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.isa.catalogue import CALLS
from fixtures import reach_rank
from fixtures.worker import Env


def reach_call(env: Env, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Make the call ``payload["call"]`` and return what ``fixtures.reach_rank.record`` does. Every rank calls it."""
    return reach_rank.record(env, lambda: CALLS[payload["call"]].run(env), execute=False)
