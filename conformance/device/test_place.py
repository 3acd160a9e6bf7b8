"""get_cu_id() and get_xcc_id(): the compute unit and the die of a wavefront, for Triton and Gluon kernels.

In a launch of many programs, the pairs of numbers never name more compute units than the device has, and the die is 0
on NVIDIA GPUs. The emulated device assigns work-groups to 8 dies in turn, so that the dies are known exactly.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

PROGRAMS = 304
DIES, BITS = 8, 256


@triton.jit
def triton_place(get_cu_id: tl.constexpr, get_xcc_id: tl.constexpr, out):
    tl.store(out + 2 * tl.program_id(0), get_xcc_id())
    tl.store(out + 2 * tl.program_id(0) + 1, get_cu_id())


@gluon.jit
def gluon_place(get_cu_id: gl.constexpr, get_xcc_id: gl.constexpr, out):
    gl.store(out + 2 * gl.program_id(0), get_xcc_id())
    gl.store(out + 2 * gl.program_id(0) + 1, get_cu_id())


PLACES = {"triton": triton_place, "gluon": gluon_place}


def run(env, case):
    (language,) = case.arguments
    findings = Findings(env.rank)
    utils = env.module(".device.utils")
    out = torch.full((PROGRAMS, 2), -1, dtype=torch.int32, device=env.device.torch_device)
    PLACES[language][(PROGRAMS,)](utils.get_cu_id, utils.get_xcc_id, out, num_warps=1)
    env.device.synchronize()
    places = [tuple(row) for row in out.tolist()]
    backend, units = env.in_library(properties)
    amd = backend == "hip"
    dies, limit = (DIES, BITS) if amd else (1, units)
    findings.true(f"places {sorted(set(places))}", all(0 <= die < dies and 0 <= unit < limit for die, unit in places))
    findings.true(f"more than one compute unit is used: {sorted(set(places))}", len(set(places)) > 1)
    if env.device.name == "emulated":
        findings.equal("dies, in turn", [die for die, _ in places], [program % DIES for program in range(PROGRAMS)])
        findings.equal("number of different places", len(set(places)), PROGRAMS)
    else:
        findings.true(f"{len(set(places))} places on {units} compute units", len(set(places)) <= units)
    return findings.first


def properties(env):
    """Return Triton's name of the device's kind, and its number of compute units."""
    active = driver.active
    units = active.utils.get_device_properties(active.get_current_device())["multiprocessor_count"]
    return active.get_current_target().backend, units


def cases(ranks):
    return [HostCase("place", (language,)) for language in PLACES]


@requirement("DEVICE-PLACE-001", cases=cases, weak=False)
def test_place(check, case):
    check(run, case)
