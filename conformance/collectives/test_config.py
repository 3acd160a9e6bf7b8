"""Config: fields, defaults, how None resolves, and what is refused. ReduceOp: its values."""

import dataclasses

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

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


def run(env, case):
    config, found = env.under_test.config, Findings(env.rank)
    plain = config()
    for name, wanted in DEFAULTS.items():
        found.equal(f"Config().{name}", getattr(plain, name), wanted)
    found.true("Config is a dataclass", dataclasses.is_dataclass(config))
    found.equal("Config().all_reduce_ring_slice_n", plain.all_reduce_ring_slice_n, plain.block_size_n)
    found.true(f"Config().num_xcds {plain.num_xcds!r}", isinstance(plain.num_xcds, int) and plain.num_xcds >= 1)
    small = config(swizzle_size=2, comm_sms=64, num_xcds=8)
    found.equal("chunk_size with swizzle 2, 64 programs, 8 dies", small.chunk_size, 4)
    found.equal("chunk_size with swizzle 4, 64 programs, 8 dies", config(num_xcds=8).chunk_size, 8)
    for name, values in REFUSED.items():
        for value in values:
            found.raises(f"Config({name}={value!r})", ValueError, lambda n=name, v=value: config(**{n: v}))
    found.raises("Config(block_size_n=96), which its slice inherits", ValueError, lambda: config(block_size_n=96))
    found.equal(
        "Config(block_size_n=96, all_reduce_ring_slice_n=32)",
        config(block_size_n=96, all_reduce_ring_slice_n=32).block_size_n,
        96,
    )
    plain.block_size_m = -5
    found.equal("a field assigned later", plain.block_size_m, -5)
    for value, name in enumerate(REDUCE_OPS):
        found.equal(f"ReduceOp.{name}", int(getattr(env.under_test.module.ccl.ReduceOp, name).value), value)
    return found.first


@requirement("CCL-CONFIG-001", cases=lambda ranks: [HostCase("config")])
def test_config(check, case):
    check(run, case)
