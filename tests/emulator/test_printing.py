"""device_print and device_assert, as Triton compiles them: the host's service answers while the kernel waits."""

import numpy as np
import pytest
import torch

from harness import emulator
from harness.emulator import DeviceAssert, KernelTrap
from tests.emulator import printing_kernels as kernels


@pytest.fixture(params=["gfx942", "gfx950"])
def device(request):
    yield emulator.activate(request.param)
    emulator.deactivate()


def test_blocks_are_printed(device, capsys):
    """Every lane of every program prints a line for each operand, in Triton's format."""
    x, f = torch.arange(-2, 62, dtype=torch.int32), torch.linspace(-1, 1, 64)
    kernels.print_blocks[(2,)](x, f, 64, num_warps=1)
    lines = capsys.readouterr().out.splitlines()
    prefix = " a prefix that does not fit into the seven words of one packet, whatever comes: "
    wanted = []
    for pid in range(2):
        for i, (v, w) in enumerate(zip(x.tolist(), f.tolist(), strict=True)):
            where = f"pid ({pid}, 0, 0) idx ({i:2})"
            half = float(np.float16(w))
            wanted += [
                f"{where}{prefix}(operand 0) {v}",
                f"{where}{prefix}(operand 1) {w:f}",
                f"{where} hex: 0x{v & 0xFFFFFFFF:08x}",
                f"{where} narrow: (operand 0) {half:f}",
                f"{where} narrow: (operand 1) {v}",
                f"{where} narrow: (operand 2) {v}",
                f"{where} narrow: (operand 3) {v & 0xFFFFFFFF}",
            ]
    assert sorted(lines) == sorted(wanted)
    # A lane's lines, and the lanes of one instruction, are in order.
    assert [line for line in lines if " hex" in line] == [line for line in wanted if " hex" in line]


def test_scalars_are_printed_by_every_lane(device, capsys):
    """A kernel may print repeatedly, in a loop and under a condition."""
    kernels.print_scalars[(1,)](3, num_warps=2)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(set(lines)) == ["pid (0, 0, 0) done", "pid (0, 0, 0) idx () turn: 1"]
    assert lines.count("pid (0, 0, 0) idx () turn: 1") * 3 == lines.count("pid (0, 0, 0) done") == 3 * 64 * 2


def test_what_ranks_print_comes_rank_after_rank(capsys):
    device = emulator.activate("gfx942")
    with emulator.concurrent_ranks(device) as ranks:
        for rank in (1, 0):
            with ranks.rank(rank):
                kernels.print_blocks[(1,)](torch.full((64,), rank, dtype=torch.int32), torch.zeros(64), 64, num_warps=1)
    emulator.deactivate()
    values = [line.rsplit(" ", 1)[1] for line in capsys.readouterr().out.splitlines() if " hex" in line]
    assert values == ["0x00000000"] * 64 + ["0x00000001"] * 64


def test_an_assert_that_holds(device, capsys):
    x = torch.arange(128, dtype=torch.int32)
    kernels.assert_below[(1,)](x, 128, 128, num_warps=2, debug=True)
    assert x.tolist() == list(range(1, 129))
    assert capsys.readouterr() == ("", "")


def test_an_assert_that_fails(device):
    """The fault begins with the assert's own text, and names the program and the line that failed."""
    x = torch.arange(128, dtype=torch.int32)
    with pytest.raises(DeviceAssert) as caught:
        kernels.assert_below[(3,)](x, 100, 128, num_warps=2, debug=True)
    fault = caught.value
    text = "device assertion failed: 'a value is too large, and this text has more words than one packet can carry'"
    assert str(fault).startswith(text)
    assert fault.where["assertion"].startswith(text)
    assert fault.where["wavefront"] == 1
    with open(kernels.__file__) as source:
        line = next(n for n, text in enumerate(source, start=1) if "tl.device_assert" in text)
    assert f"printing_kernels.py:{line}:" in fault.where["source"][0]
    assert not isinstance(fault, KernelTrap)
    assert x.tolist()[100:] == list(range(100, 128))


def test_a_failed_assert_tells_what_was_printed_before_it(device):
    """Each text is reported once, however many lanes printed it."""
    with pytest.raises(DeviceAssert) as caught:
        kernels.print_and_assert[(1,)](torch.tensor([7]), num_warps=2, debug=True)
    assert caught.value.where["printed"] == ["pid (0, 0, 0) idx () found: 7"]
    assert "(printed before: pid (0, 0, 0) idx () found: 7)" in str(caught.value)


def test_without_debug_nothing_is_asserted(device):
    x = torch.arange(128, dtype=torch.int32)
    kernels.assert_below[(1,)](x, 100, 128, num_warps=2)
    assert x.tolist() == list(range(1, 129))
