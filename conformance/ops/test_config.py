"""FusedConfig: fields, defaults, and what validate refuses. FusedWorkspace: what it is made for. The module's names."""

import dataclasses

import torch

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

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
OPS = ("matmul_all_reduce", "all_gather_matmul", "matmul_all_gather", "matmul_reduce_scatter")


def run(env, case):
    ops, found = env.under_test.module.ops, Findings(env.rank)
    config = ops.FusedConfig
    for name, wanted in DEFAULTS.items():
        found.equal(f"FusedConfig().{name}", getattr(config(), name), wanted)
    found.true("FusedConfig is a dataclass", dataclasses.is_dataclass(config))
    found.equal("FusedConfig().validate()", config().validate(), None)
    for name, values in REFUSED.items():
        for value in values:
            found.raises(f"validate with {name}={value!r}", ValueError, config(**{name: value}).validate, says=name)
    ring = config(block_size_n=64, all_reduce_variant="ring")
    found.equal("a ring of 4", ring.validate(world_size=4), None)
    found.raises("a ring of 3", ValueError, lambda: ring.validate(world_size=3))

    fresh = ops.FusedWorkspace()
    for name, wanted in (("aux_buffer", None), ("locks", None), ("prepared", False)):
        found.equal(f"FusedWorkspace().{name}", getattr(fresh, name), wanted)
    made = ops.FusedWorkspace("matmul_all_reduce", (8, 16, 32), torch.float16, 4, "one_shot", prepared=True)
    right = ["matmul_all_reduce", (8, 16, 32), torch.float16, 4, "one_shot"]
    found.equal("matches what it was made for", made.matches(*right), True)
    for place, other in enumerate(("matmul_reduce_scatter", (8, 16, 33), torch.float32, 2, "two_shot")):
        wrong = [*right[:place], other, *right[place + 1 :]]
        found.equal(f"matches({wrong})", made.matches(*wrong), False)
    made.reset()
    found.equal("prepared after reset", made.prepared, False)

    names = {}
    exec(f"from {env.under_test.name}.ops import *", names)
    for name in ("FusedConfig", "FusedWorkspace", *OPS, *(f"{op}_preamble" for op in OPS)):
        found.true(f"a star import gives {name}", names.get(name) is getattr(ops, name))
        found.true(f"ctx.ops.{name}", name[0] == "F" or callable(getattr(env.iris.ops, name)))
    return found.first


@requirement("FUSED-CONFIG-001", cases=lambda ranks: [HostCase("config")])
def test_config(check, case):
    check(run, case)
