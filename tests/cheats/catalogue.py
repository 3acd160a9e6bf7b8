"""The cheats: code that a library could run at its import, and the line by which a run that judges apart reports it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Cheat:
    """``code`` is appended to the library's ``__init__.py``. ``defect`` is a listed defect that the copy also has, ""
    for none. ``chosen`` selects among ``tests``; ``options`` are further ones of the run; ``line`` is in the report of
    a run that judges apart."""

    name: str
    code: str
    line: str
    defect: str = "put: no sign arrives"
    tests: str = "conformance/rma/test_put.py"
    chosen: str = "test_put and fp32"
    options: tuple[str, ...] = ()
    promises: bool = True
    """Whether its code is read for what the library promises, which finds a missing release before the detector."""


raced = partial(
    Cheat,
    defect="collectives: a turn is signalled without a release",
    tests="conformance/collectives/test_operations.py",
    chosen="test_all_gather",
    options=("-p", "tests.fixtures.only_races"),
    promises=False,
)
"""A cheat of the race detector."""

CHEATS = (
    Cheat(
        "patched comparison",
        """
from harness.oracles.heap import HeapImage
HeapImage.difference = lambda self: None
""",
        "first wrong element: rank ",
    ),
    Cheat(
        "expected result written to the heap",
        """
from harness.oracles.heap import HeapImage
_compared = HeapImage.difference
def _difference(self):
    self.arena.copy_(self._wanted)
    return _compared(self)
HeapImage.difference = _difference
""",
        "first wrong element: rank ",
    ),
    Cheat(
        "patched oracle",
        """
import harness.oracles as _oracles
_exchange = _oracles.exchange
_oracles.exchange = lambda *a, **k: {sender: sent.abs() for sender, sent in _exchange(*a, **k).items()}
""",
        "first wrong element: rank ",
    ),
    Cheat(
        "patched payloads",
        """
import harness.cases as _cases
_payload = _cases.payload
_cases.payload = lambda *a, **k: _payload(*a, **k).abs()
""",
        "first wrong element: rank ",
    ),
    Cheat(
        "answer in the rank's place",
        """
import fixtures.worker as _worker
_run_case = _worker.run_case
_worker.run_case = lambda *a, **k: {**_run_case(*a, **k), "difference": None}
""",
        "first wrong element: rank ",
    ),
    Cheat(
        "patched clock",
        """
import time as _time
_monotonic = _time.monotonic
_time.monotonic = lambda: _monotonic() / 2
""",
        "the clock of the library's process differs",
        defect="",
    ),
    Cheat(
        "results of torch.distributed",
        """
import torch.distributed as _dist
from .ccl.instance import InstanceCollectives as _Collectives
def _all_gather(self, output, input, **options):
    whole = output.new_empty(output.shape)
    _dist.all_gather_into_tensor(whole, input.contiguous())
    output.copy_(whole)
_Collectives.all_gather = _all_gather
""",
        "no kernel accessed another rank's memory",
        defect="",
        tests="conformance/collectives/test_operations.py",
        chosen="test_all_gather",
    ),
    Cheat(
        "skipped launches",
        """
from triton.runtime.jit import JITFunction as _JITFunction
_run = _JITFunction.run
def _skip(self, *arguments, **options):
    return None if self.fn.__name__.startswith("transfer_") else _run(self, *arguments, **options)
_JITFunction.run = _skip
""",
        "the device did not execute",
        defect="",
    ),
    Cheat(
        "recorded replies",
        """
import fixtures.judge.library as _library
_answer, _recorded = _library.answer, {}
def _replayed(library, request):
    if request["do"] not in _recorded:
        _recorded[request["do"]] = _answer(library, request)
    return _recorded[request["do"]]
_library.answer = _replayed
""",
        "the clock of the library's process differs",
        defect="",
    ),
    Cheat(
        "patched contract",
        """
import conformance.isa.contract as _contract
_contract.broken = lambda *arguments: []
""",
        "the contract of all_gather",
        defect="collectives: a turn is signalled without a release",
        tests="conformance/isa/test_contract.py",
        chosen="test_contract",
    ),
    raced(
        "patched race detector",
        """
import fixtures.races as _races
_races.judged = lambda records: (None, [])
""",
        "data race on",
    ),
    raced(
        "empty record for the race detector",
        """
from harness.emulator.watch.race_record import Recording as _Recording
_plain = _Recording.to_plain
_Recording.to_plain = lambda self: {**_plain(self), "events": [], "sites": []}
""",
        "the race detector has 0 of",
    ),
    raced(
        "stores left out of the record for the race detector",
        """
from harness.emulator.watch.race_record import Recording as _Recording
_access = _Recording.access
def _loads(self, key, wave, effects):
    _access(self, key, wave, [effect for effect in effects if effect.kind == "load"])
_Recording.access = _loads
""",
        "the race detector has no access of the kernel",
    ),
    Cheat(
        "behaves under the harness only",
        """
import sys as _sys
UNDER_TEST = any(name.partition(".")[0] == "conformance" for name in _sys.modules)
""",
        "names the harness",
        defect="",
        tests="conformance/negative/test_independence.py",
        chosen="test_independence",
    ),
)
