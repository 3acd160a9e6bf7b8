"""Adapter for the outsider's library, as its author would write it from docs/adapters.md."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from fixtures.adapters import Adapter, ProvidedHeap


class Outsider(Adapter):
    """``tests.outsider.right_lib`` and ``tests.outsider.wrong_lib``."""

    name = "outsider"
    default_subject = "tests.outsider.right_lib"

    def make_heap(self, size: int) -> ProvidedHeap:
        heap: ProvidedHeap = importlib.import_module(self.subject).Comm(size)
        return heap

    def collectives(self) -> Mapping[str, Callable[[Any, Any, Any], None]]:
        return {"all_reduce": _all_reduce, "all_gather": _all_gather}

    def device_functions(self) -> Mapping[str, str]:
        return {"load": f"{self.subject}:remote_load", "store": f"{self.subject}:remote_store"}

    def signal(self, heap: Any, peer: int) -> None:
        heap.signal(peer)

    def wait(self, heap: Any, peer: int) -> None:
        heap.wait(peer)


def _all_reduce(heap: Any, output: Any, source: Any) -> None:
    heap.all_reduce(output, source)


def _all_gather(heap: Any, output: Any, source: Any) -> None:
    heap.all_gather(output, source)
