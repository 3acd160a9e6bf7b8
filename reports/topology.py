"""The links between the GPUs of a run, as places on a drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.evidence import Evidence

_CENTRE, _RADIUS = 160, 120
_DRAWN = 32
_KINDS = ("link", "level", "type")


@dataclass(frozen=True)
class Node:
    """A GPU: its number in the run, its uuid, and its place."""

    number: int
    gpu: str
    x: float
    y: float


@dataclass(frozen=True)
class Link:
    """A link between two GPUs, with what the vendor's library states about it."""

    first: Node
    second: Node
    kind: str


@dataclass(frozen=True)
class Topology:
    """GPUs on a circle and the links between them. ``kinds`` counts the links of each kind."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    kinds: Mapping[str, int]


def topology_of(evidence: Evidence) -> Topology | None:
    """Return the drawing of the first GPUs, or None if no links between GPUs are recorded."""
    facts: dict[str, Mapping[str, Any]] = {
        gpu: entry for record in evidence.hardware for gpu, entry in record.gpus.items() if isinstance(entry, Mapping)
    }
    gpus = list(facts)[:_DRAWN]
    nodes = {gpu: _node(number, gpu, len(gpus)) for number, gpu in enumerate(gpus)}
    links: list[Link] = []
    for gpu in gpus:
        peers = facts[gpu].get("topology")
        for other, about in peers.items() if isinstance(peers, Mapping) else ():
            if other in nodes and nodes[gpu].number < nodes[other].number:
                links.append(Link(nodes[gpu], nodes[other], _kind(about)))
    if not links:
        return None
    kinds: dict[str, int] = {}
    for link in links:
        kinds[link.kind] = kinds.get(link.kind, 0) + 1
    return Topology(tuple(nodes.values()), tuple(links), kinds)


def _node(number: int, gpu: str, count: int) -> Node:
    angle = 2 * math.pi * number / count - math.pi / 2
    return Node(
        number, gpu, round(_CENTRE + _RADIUS * math.cos(angle), 1), round(_CENTRE + _RADIUS * math.sin(angle), 1)
    )


def _kind(about: Any) -> str:
    """Return what is known of a link in a few words, as ``link type 2`` or ``level 50``."""
    if not isinstance(about, Mapping):
        return str(about)
    for name in _KINDS:
        value = about.get(name)
        if isinstance(value, Mapping):
            return ", ".join(f"{key} {each}" for key, each in value.items() if not isinstance(each, Mapping))
        if value is not None:
            return f"{name} {value}"
    return "unknown"
