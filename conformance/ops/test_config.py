"""FusedConfig: its fields, defaults, and the values that validate refuses. FusedWorkspace: which calls it matches. The
public names of the module."""

import dataclasses

import torch

from conformance.ops.operations import PRODUCTS
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

DEFAULTS = {
    "block_size_m": 256, "block_size_n": 64, "block_size_k": 64, "group_size_m": 1, "num_sms": None, "num_xcds": 1,
    "chunk_size": 1, "cache_modifier_a": ".ca", "cache_modifier_b": ".ca", "allow_tf32": True,
    "all_reduce_variant": "two_shot", "all_reduce_num_rings": 1,
}  # fmt: skip
REFUSED = {
    **dict.fromkeys(("block_size_m", "block_size_n", "block_size_k", "group_size_m", "num_sms"), (0, -1)),
    **dict.fromkeys(("num_xcds", "chunk_size", "all_reduce_num_rings"), (0, -1)),
    "all_reduce_variant": ("tree", ""),
}


def star_import(env):
    """Return for each name of a star import whether it is the module's object of that name."""
    names = {}
    exec(f"from {env.under_test.name}.ops import *", names)
    ops = env.under_test.module.ops
    return {name: value is getattr(ops, name, None) for name, value in names.items() if name != "__builtins__"}


def is_dataclass(env, kind):
    return dataclasses.is_dataclass(kind)


def run(env, case):
    ops, findings = env.under_test.module.ops, Findings(env.rank)
    config = ops.FusedConfig
    for name, wanted in DEFAULTS.items():
        findings.equal(f"FusedConfig().{name}", getattr(config(), name), wanted)
    findings.true("FusedConfig is a dataclass", env.in_library(is_dataclass, config))
    findings.equal("FusedConfig().validate()", config().validate(), None)
    for name, values in REFUSED.items():
        for value in values:
            findings.raises(f"validate with {name}={value!r}", ValueError, config(**{name: value}).validate, says=name)
    ring = config(block_size_n=64, all_reduce_variant="ring")
    findings.equal("a ring of 4", ring.validate(world_size=4), None)
    findings.raises("a ring of 3", ValueError, lambda: ring.validate(world_size=3))

    fresh = ops.FusedWorkspace()
    for name, wanted in (("aux_buffer", None), ("locks", None), ("prepared", False)):
        findings.equal(f"FusedWorkspace().{name}", getattr(fresh, name), wanted)
    made = ops.FusedWorkspace("matmul_all_reduce", (8, 16, 32), torch.float16, 4, "one_shot", prepared=True)
    right = ["matmul_all_reduce", (8, 16, 32), torch.float16, 4, "one_shot"]
    findings.equal("matches what it was made for", made.matches(*right), True)
    for place, other in enumerate(("matmul_reduce_scatter", (8, 16, 33), torch.float32, 2, "two_shot")):
        wrong = [*right[:place], other, *right[place + 1 :]]
        findings.equal(f"matches({wrong})", made.matches(*wrong), False)
    made.reset()
    findings.equal("prepared after reset", made.prepared, False)

    same = env.in_library(star_import)
    preambles = [name for name in (f"{op}_preamble" for op in PRODUCTS) if hasattr(ops, name)]
    for name in ("FusedConfig", "FusedWorkspace", *PRODUCTS, *preambles):
        findings.true(f"a star import gives {name}", same.get(name))
        findings.true(f"ctx.ops.{name}", name[0] == "F" or env.is_callable(getattr(env.iris.ops, name)))
    return findings.first


@requirement(
    "FUSED-CONFIG-001",
    cases=lambda ranks: [HostCase("config")],
    one_process_on_gpus="no judge apart has run it on a GPU yet",
)
def test_config(check, case):
    check(run, case)
