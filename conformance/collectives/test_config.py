"""Config: its fields and defaults, how None is resolved, and the refused values. ReduceOp: its values."""

import dataclasses

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

DEFAULTS = {
    "block_size_m": 32, "block_size_n": 64, "swizzle_size": 4, "comm_sms": 64, "use_gluon": False,
    "all_gather_variant": "persistent",
    "all_reduce_variant": "two_shot", "all_reduce_distribution": 1, "all_reduce_num_rings": 1,
    "reduce_scatter_variant": "two_shot",
    "num_stages": 1, "num_warps": 4, "threads_per_warp": 64, "waves_per_eu": 0,
}  # fmt: skip
REFUSED = {
    **dict.fromkeys(("block_size_m", "block_size_n", "swizzle_size", "comm_sms", "num_xcds"), (0, -1)),
    "all_reduce_num_rings": (0, -1), "num_warps": (0, -1),
    "all_gather_variant": ("ring", ""), "all_reduce_variant": ("tree",), "reduce_scatter_variant": ("ring",),
    "all_reduce_distribution": (2, -1), "threads_per_warp": (16, 0, 128), "all_reduce_ring_slice_n": (0, -1, 48, 128),
}  # fmt: skip
REDUCE_OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def is_dataclass(env, kind):
    return dataclasses.is_dataclass(kind)


def run(env, case):
    config, findings = env.under_test.config, Findings(env.rank)
    plain = config()
    for name, wanted in DEFAULTS.items():
        findings.equal(f"Config().{name}", getattr(plain, name), wanted)
    findings.true("Config is a dataclass", env.in_library(is_dataclass, config))
    findings.equal("Config().all_reduce_ring_slice_n", plain.all_reduce_ring_slice_n, plain.block_size_n)
    findings.true(f"Config().num_xcds {plain.num_xcds!r}", isinstance(plain.num_xcds, int) and plain.num_xcds >= 1)
    small = config(swizzle_size=2, comm_sms=64, num_xcds=8)
    findings.equal("chunk_size with swizzle 2, 64 programs, 8 dies", small.chunk_size, 4)
    findings.equal("chunk_size with swizzle 4, 64 programs, 8 dies", config(num_xcds=8).chunk_size, 8)
    for name, values in REFUSED.items():
        for value in values:
            findings.raises(f"Config({name}={value!r})", ValueError, lambda n=name, v=value: config(**{n: v}))
    findings.raises("Config(block_size_n=96), which its slice inherits", ValueError, lambda: config(block_size_n=96))
    findings.equal(
        "Config(block_size_n=96, all_reduce_ring_slice_n=32)",
        config(block_size_n=96, all_reduce_ring_slice_n=32).block_size_n,
        96,
    )
    plain.block_size_m = -5
    findings.equal("a field assigned later", plain.block_size_m, -5)
    for value, name in enumerate(REDUCE_OPS):
        findings.equal(f"ReduceOp.{name}", int(getattr(env.under_test.module.ccl.ReduceOp, name).value), value)
    return findings.first


@requirement(
    "CCL-CONFIG-001",
    cases=lambda ranks: [HostCase("config")],
    one_process_on_gpus="no judge apart has run it on a GPU yet",
)
def test_config(check, case):
    check(run, case)
