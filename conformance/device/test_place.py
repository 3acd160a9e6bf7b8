"""get_cu_id() and get_xcc_id(): where a wavefront runs, for Triton and Gluon kernels.

A launch of many programs: together the two numbers never name more compute units than the device has, and the die is 0
on NVIDIA GPUs. On the emulated device, which hands out work-groups in turn over 8 dies, they are known exactly.
"""

import importlib

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

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
    found = Findings(env.rank)
    utils = importlib.import_module(f"{env.under_test.name}.device.utils")
    out = torch.full((PROGRAMS, 2), -1, dtype=torch.int32, device=env.device.torch_device)
    PLACES[language][(PROGRAMS,)](utils.get_cu_id, utils.get_xcc_id, out, num_warps=1)
    env.device.synchronize()
    places = [tuple(row) for row in out.tolist()]
    units = _units()
    amd = driver.active.get_current_target().backend == "hip"
    dies, most = (DIES, BITS) if amd else (1, units)
    found.true(f"places {sorted(set(places))}", all(0 <= die < dies and 0 <= unit < most for die, unit in places))
    found.true(f"more than one compute unit is used: {sorted(set(places))}", len(set(places)) > 1)
    if env.device.name == "emulated":
        found.equal("dies, in turn", [die for die, _ in places], [program % DIES for program in range(PROGRAMS)])
        found.equal("places of as many programs as there are", len(set(places)), PROGRAMS)
    else:
        found.true(f"{len(set(places))} places on {units} compute units", len(set(places)) <= units)
    return found.first


def _units():
    active = driver.active
    return active.utils.get_device_properties(active.get_current_device())["multiprocessor_count"]


def cases(ranks):
    return [HostCase("place", (language,)) for language in PLACES]


@requirement("DEVICE-PLACE-001", cases=cases)
def test_place(check, case):
    check(run, case)
