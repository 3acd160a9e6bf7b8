"""Four sums in four registers, packed multiply-add into the destination, and instructions without effect on data."""

import random

import pytest

from tests.emulator.covering import covers
from tests.emulator.ieee import F16, fma
from tests.emulator.semantics_media import octets, sad
from tests.emulator.single import execute


@covers("v_mqsad_u32_u8")
def test_four_masked_sums():
    some = random.Random(1)
    a = [[some.getrandbits(32) for _ in range(64)] for _ in range(2)]
    b = [some.getrandbits(32) & some.choice((0xFFFFFFFF, 0xFF00FF, 0)) for _ in range(64)]
    c = [[some.getrandbits(32) for _ in range(64)] for _ in range(4)]
    v = {4: a[0], 5: a[1], 6: b, **{8 + i: column for i, column in enumerate(c)}}
    mask = some.getrandbits(64)
    # The destination may be the addend.
    for first in (0, 8):
        text = f"v_mqsad_u32_u8 v[{first}:{first + 3}], v[4:5], v6, v[8:11]"
        result = execute(text, v=v, exec=mask)
        for lane in range(64):
            both = octets(a[0][lane] | a[1][lane] << 32, 8)
            for i in range(4):
                window = int.from_bytes(both[i : i + 4], "little")
                before = v[first + i][lane] if first else 0
                wanted = sad(window, b[lane], c[i][lane], masked=True) if mask >> lane & 1 else before
                assert result.v(first + i)[lane] == wanted


@covers("v_pk_fmac_f16")
def test_packed_multiply_add_into_the_destination():
    some = random.Random(2)
    words = [[some.getrandbits(32) for _ in range(64)] for _ in range(3)]
    result = execute("v_pk_fmac_f16 v0, v1, v2", v=dict(enumerate(words))).v(0)
    for lane, got in enumerate(result):
        for shift in (0, 16):
            c, a, b = (column[lane] >> shift & 0xFFFF for column in words)
            half, wanted = got >> shift & 0xFFFF, fma(F16, a, b, c)
            assert half == wanted or (F16.is_nan(half) and F16.is_nan(wanted))


HINTS = [
    "s_setprio 3", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol", "s_wakeup",
    "s_incperflevel 1", "s_decperflevel 1", "s_atc_probe 1, s[0:1], 0x0", "s_atc_probe_buffer 1, s[0:3], 0x0",
    "s_dcache_discard s[0:1], 0x0", "s_dcache_discard_x2 s[0:1], 0x0", "ds_nop", "v_nop", "v_clrexcp",
]  # fmt: skip


@covers(*(text.split()[0] for text in HINTS))
@pytest.mark.parametrize("text", HINTS)
def test_no_register_changes(text):
    v, s = {n: n * 7 for n in range(8)}, {n: n * 5 for n in range(8)}
    result = execute(text, v=v, s=s, vcc=3, scc=True)
    assert [result.v(n)[0] for n in range(8)] == list(v.values())
    assert [result.s(n)[0] for n in range(8)] == list(s.values())
    assert (result.vcc, result.scc, result.exec) == ([3], [True], [(1 << 64) - 1])
