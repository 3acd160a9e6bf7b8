from dataclasses import dataclass

import numpy as np
import torch

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import case_type
from harness.oracles import gathered


@case_type
@dataclass(frozen=True)
class DispatchCase:
    tokens: int
    width: int
    seed: int


def dispatch(env, case):
    """Send every rank's tokens. Return the first wrong element of the whole heap, or None."""
    n, width, ranks, image = case.tokens, case.width, env.world_size, env.image
    image.reset()
    source = image.claim("tokens", 1024, n * width, torch.float32)
    target = image.claim("received", 256 * 1024, ranks * n * width, torch.float32)
    tokens = torch.arange(n * width, dtype=torch.float32) + 100_000 * (env.rank + 1)
    experts = torch.from_numpy(np.random.default_rng([case.seed, env.rank]).integers(0, ranks, n).astype("int32"))
    image.fill(source, tokens)
    env.settle()  # every rank's heap is prepared before any rank writes
    with env.acting():
        received = image.tensor(target).view(ranks * n, width)
        mine = image.tensor(source).view(n, width)
        env.under_test.module.dispatch(env.iris, received, mine, experts.to(env.device.torch_device))
    env.settle()  # every rank has acted
    chosen = gathered(experts.unsqueeze(0)).flatten() == env.rank  # row by row: does this rank hold the expert?
    image.expect(target, gathered(tokens.unsqueeze(0)).flatten(), chosen.repeat_interleave(width).numpy())
    return image.difference()


def width(env, case):
    """Check the machine code that the case launched."""
    findings = Findings(env.rank)
    env.launched()
    difference = dispatch(env, case)
    for launch in env.launched():
        for code in isa.codes_of(launch):
            if mismatch := isa.remote_mismatch(code, "store", 16):
                findings.note(f"remote stores of {launch.kernel}", mismatch, "16 bytes each")
    return difference or findings.first


def cases(ranks):
    from hypothesis import strategies as st  # here, because the ranks import this file too and need no Hypothesis

    return st.builds(DispatchCase, tokens=st.integers(1, 30), width=st.integers(1, 100), seed=st.integers(0, 99))


@requirement("MOE-DISPATCH-001", cases=cases, ranks=2)
def test_dispatch(check, case: DispatchCase):
    check(dispatch, case)


@requirement("MOE-WIDTH-001", cases=lambda ranks: [DispatchCase(tokens=4, width=256, seed=0)], ranks=2)
def test_width(check, case: DispatchCase):
    check(width, case)
