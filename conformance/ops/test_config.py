"""FusedConfig: its fields, defaults, and the values that validate refuses. FusedWorkspace: which calls it matches. The
public names of the module. Its cache modifiers are those of the loads of A and of B in the code for AMD GPUs.
"""

import dataclasses

import torch

from conformance.isa.targets import LOADS
from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import config, inputs_of, invoke, owned, prepare, wanted_of
from conformance.support.cases import HostCase
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa

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
    fused_config = ops.FusedConfig
    for name, wanted in DEFAULTS.items():
        findings.equal(f"FusedConfig().{name}", getattr(fused_config(), name), wanted)
    findings.true("FusedConfig is a dataclass", env.in_library(is_dataclass, fused_config))
    findings.equal("FusedConfig().validate()", fused_config().validate(), None)
    for name, values in REFUSED.items():
        for value in values:
            findings.raises(
                f"validate with {name}={value!r}", ValueError, fused_config(**{name: value}).validate, says=name
            )
    ring = fused_config(block_size_n=64, all_reduce_variant="ring")
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


def run_unchanged(env, case):
    """Check that no product changes the caller's configuration, of which no work-group can hold the whole block."""
    findings = Findings(env.rank)
    given = {"block_size_m": 16, "block_size_n": 16, "block_size_k": 1 << 14}
    for op in PRODUCTS:
        product = prepare(env, FusedCase(op, "fp32"))
        settings = env.under_test.module.ops.FusedConfig(**given)
        with env.acting():
            preamble = getattr(env.iris.ops, f"{op}_preamble")
            preamble(*(product.tensors[name] for name in "cab"), config=settings).clear()
        fields = {name: getattr(settings, name) for name in DEFAULTS}
        findings.equal(f"the caller's configuration after {op}_preamble", fields, {**DEFAULTS, **given})
    return findings.first


def run_modifiers(env, case):
    """Multiply with a cache modifier for the loads of one matrix only, and compare the result and the loads' words."""
    (matrix,) = case.arguments
    findings, modifier = Findings(env.rank), ".cg"
    shape = FusedCase("matmul_reduce_scatter", m=16, n=32, k=32)
    product = prepare(env, shape)
    values = inputs_of(env, shape, product, 0)
    wanted = wanted_of(env, shape, product, values)
    for name, value in values.items():
        product.tensors[name].copy_(value)
    given = {f"cache_modifier_{name}": modifier if name == matrix else "" for name in ("a", "b")}
    env.settle()
    with env.acting():
        invoke(shape, product, config(env, shape, **given), None, env.iris.ops)
    env.settle()
    mine = owned(env, shape)
    findings.same("the owned elements of C", product.tensors["c"].cpu()[mine], wanted[mine])
    for launch in env.launched():
        code = isa.of_launch(launch)
        if code.language != "amdgcn":
            continue  # NVIDIA: Triton copies A and B to shared memory by cp.async, whose words follow from its width
        loads = [access for access in code.accesses if access.kind == "load" and access.space != "scalar"]
        words = LOADS[code.language][modifier]
        # Triton's buffer loads on AMD GPUs have sc0 too.
        with_words = [access.source for access in loads if set(words) <= set(access.bits)]
        findings.true(f"loads of {matrix} with {' '.join(words)} in {launch.kernel}", with_words)
    return findings.first


RUNS = {"config": run, "unchanged": run_unchanged, "modifiers": run_modifiers}


def cases(ranks):
    if not judged.extended():
        return [HostCase("config")]
    return [HostCase("config"), HostCase("unchanged"), *(HostCase("modifiers", (matrix,)) for matrix in ("a", "b"))]


@requirement(
    "FUSED-CONFIG-001",
    cases=cases,
    one_process_on_gpus="no judge apart has run it on a GPU yet",
)
def test_config(check, case):
    check(RUNS[case.what], case)
