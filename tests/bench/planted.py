"""Ranks with planted answers, without processes: they test the controller in milliseconds."""

from command_line.bench.plan import Request
from command_line.bench.results import Results
from command_line.bench.run import RANKS_MODULE
from harness.ranks import RankCrash

ENVIRONMENT = {"python": "3.11.0", "packages": {"torch": "2.11.0"}}
RIG = {"theirs": "torch.distributed (NCCL 2.28)", "gpu": "NVIDIA H200", "settings": {}}
GPU = {"device": "cuda", "arch": "sm_90", "ranks": 8, "sizes": (2 << 20, 4 << 20), "cus": (4, 8)}


def request(**changes):
    requested = {"op": "all_gather", "backends": ("nccl", "gluon"), "repeat": 5, **GPU, **changes}
    return Request(**requested)


def results(**changes):
    return Results.planned(request(**changes), ENVIRONMENT, "2026-01-01T00:00:00Z")


class Ranks:
    """``seconds(cell)`` per call; ``refuses``, ``crashes``, ``errs``: cells that do so (a crash when timed). A cell is
    (backend, CU count) and, where it has fields, those.

    Like real ranks they know only the cells that were prepared since they started.
    """

    def __init__(self, ranks=8, seconds=lambda cell: 1e-5, refuses=(), crashes=(), errs=()):
        self.ranks = ranks
        self.seconds = seconds
        self.refuses, self.crashes, self.errs = refuses, crashes, errs
        self.size = None
        self.prepared = {}
        self.calls = []
        self.timed = []

    def call(self, target, payload=None, deadline=30.0):
        module, _, name = target.partition(":")
        assert module == RANKS_MODULE
        assert deadline > 0
        self.calls.append((name, payload))
        if "cell" in payload:
            backend, cus, fields = payload["cell"]
            payload = {**payload, "cell": (backend, cus, *fields)}
        return getattr(self, name)(**payload)

    def open_size(self, size, **rest):
        assert {"op", "dtype", "input", "output", "their_input", "their_output"} == set(rest)
        self.size = size
        self.prepared.clear()
        return [None] * self.ranks

    def prepare(self, cell, calls, captured):
        assert self.size is not None, "prepared before a size was opened"
        if captured and cell in self.refuses:
            return ["" if rank else "RuntimeError: operation not permitted" for rank in range(self.ranks)]
        self.prepared[cell] = calls
        return [None] * self.ranks

    def measure(self, cell, generation):
        calls = self.prepared[cell]
        if cell in self.crashes:
            self.size = None
            self.prepared.clear()
            raise RankCrash({1: "signal 11 (SIGSEGV)"}, {})
        self.timed.append((cell, generation))
        wrong = "1 of 10 elements are wrong" if cell in self.errs else None
        seconds = calls * self.seconds(cell)
        return [(seconds * (1 + 0.01 * rank), wrong if rank == 1 else None) for rank in range(self.ranks)]


class Silent:
    """A watcher that remembers."""

    def __init__(self):
        self.steps = 0
        self.promised = 0

    def size(self, size, steps):
        self.promised += steps

    def step(self, key):
        self.steps += 1
