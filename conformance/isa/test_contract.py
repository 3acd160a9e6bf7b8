"""Kernels keep their contracts of memory order: ``contracts/*.toml`` has one for each call of ``catalogue.CALLS``.

The call runs, with its results tested, and the code that ran is read: spin loops poll memory and no cache; what they
wait for is not overtaken by later loads; flags are not seen before what was done earlier. For a library that
promises more, as the bundled one does, also that: waits in every wavefront before a flag, widths, no spills.
"""

import hashlib

import torch

from conformance.isa.cases import ContractCase
from conformance.isa.catalogue import CALLS
from conformance.isa.contract import broken, codes_of, contracts, promises
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered


def run(env, case):
    entry, findings = CALLS[case.call], Findings(env.rank)
    difference = entry.run(env)
    launches = {launch.hash: launch for launch in env.launched()} if env.fault is None else {}
    is_first = _is_first_with(sorted(launches), env.rank)
    if env.fault is None:
        findings.true(f"{case.call} launched a kernel and its code was recorded", launches)
        codes = [code for launch in launches.values() if is_first for code in codes_of(launch)]
        for line in broken(contracts()[entry.contract], codes, promises(env.implementation)) if codes else ():
            findings.note(f"code of {case.call}", line, f"the contract of {entry.contract}")
    return difference or findings.first


def _is_first_with(hashes, rank):
    """Return whether no lower rank launched the same kernels: one rank reads them, which takes longer than the call.
    Every rank has to call this."""
    every = gathered(_digest(hashes)).cpu()
    return not any(torch.equal(every[lower], every[rank]) for lower in range(rank))


def _digest(hashes):
    return torch.frombuffer(bytearray(hashlib.sha256("".join(hashes).encode()).digest()), dtype=torch.uint8).view(1, -1)


def cases(ranks):
    """Return a call for each contract about waiting, in Triton and in Gluon by turns: ``iris-harness isa`` has the
    others. ISA-WIDTH-001 and ATOMIC-ORDER-001 are about operations that do not wait. Then the other reductions."""
    languages, always = {}, []
    for name, entry in CALLS.items():
        if entry.waits and _is_offered(entry) and (not entry.limit or ranks <= entry.limit):
            (always if entry.always else languages.setdefault(entry.contract, [])).append(name)
    calls = [names[turn % len(names)] for turn, names in enumerate(languages.values())]
    return [ContractCase(call) for call in (*calls, *always)]


def _is_offered(entry):
    return judged.offers(*entry.needs) and (entry.published or judged.extended())


@requirement(
    "ISA-CONTRACT-001",
    cases=cases,
    ranks=2,
    weak=False,
)
def test_contract(check, case):
    check(run, case)
