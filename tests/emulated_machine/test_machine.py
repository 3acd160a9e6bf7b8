"""One emulated machine: the same GPUs in every place that names them, masks, switching on and off."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.emulated_machine import Settings, facts, system
from harness.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def emulate(code, *, gpus=4, arch="gfx942", **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**Settings(arch, "fast", gpus).environment(os.environ), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tool(*command, gpus=2):
    environment = Settings("gfx950", "fast", gpus).environment(os.environ)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": facts.gpus("gfx942", 4)[2].uuid}, [2]),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, [0]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_masks_choose_gpus(masks, expected):
    assert [gpu.index for gpu in facts.visible("gfx942", 4, masks)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gfx90a", "--arch: expected gfx942 or gfx950, got 'gfx90a'"),
        ("gfx942 slow", "--mode: expected fast"),
        ("gfx942 fast 9", "--gpus: expected a number from 1 to 8"),
        ("gfx942 fast x", "--gpus: expected a number from 1 to 8"),
        ("", "expected ARCH [MODE [GPUS]]"),
    ],
)
def test_a_bad_variable_is_one_line(text, message):
    with pytest.raises(UsageError, match="IRIS_HARNESS_EMULATE") as failure:
        Settings.parse(text)
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_bad_variable_ends_python_with_status_2():
    environment = {**Settings().environment(os.environ), "IRIS_HARNESS_EMULATE": "gfx90a"}
    done = subprocess.run(
        [sys.executable, "-c", "print('ran')"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected gfx942 or gfx950" in done.stderr


def test_files_of_the_driver_and_tools_name_the_same_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpus = facts.gpus("gfx950", 2)
    devices = system.root(gpus) / "sys/bus/pci/devices"
    assert sorted(path.name for path in devices.iterdir()) == [gpu.bus_id for gpu in gpus]
    listed = json.loads(tool("amd-smi", "list", "--json").stdout)
    assert [entry["bdf"] for entry in listed] == [gpu.bus_id for gpu in gpus]
    cards = json.loads(tool("rocm-smi", "--showproductname", "--showbus", "--json").stdout)
    assert [card["PCI Bus"].lower() for card in cards.values()] == [gpu.bus_id for gpu in gpus]
    assert {card["GFX Version"] for card in cards.values()} == {"gfx950"}
    assert tool("rocm_agent_enumerator").stdout == "gfx950\ngfx950\n"
    assert tool("rocminfo").stdout.count("Name:                    gfx950\n") == 2
    assert [path.name for path in (tmp_path / "iris-harness/machine").iterdir() if path.name.startswith(".")] == []


def test_an_option_that_a_tool_lacks_is_one_line_and_status_2():
    done = tool("rocm-smi", "--setfan", "3")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--setfan" in done.stderr


def test_links_of_the_bundled_library_are_xgmi(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from iris_under_test.host.distributed.links import IntraNodeLinkType
    from iris_under_test.host.platform.rocm import kfd

    gpus = facts.gpus("gfx942", 4)
    monkeypatch.setattr(kfd, "KFD", system.root(gpus) / "sys/class/kfd/kfd/topology/nodes")
    links = kfd.kfd_facts(gpus[1].bus_id)["links"]
    assert links == {gpu.bus_id: IntraNodeLinkType.NVLINK for gpu in gpus if gpu.index != 1}


def test_amdsmi_reports_the_machine():
    pytest.importorskip("harness.emulated_machine.smi")
    import importlib.util

    if importlib.util.find_spec("amdsmi") is None:
        pytest.skip("needs the package amdsmi")
    code = """
import amdsmi, json
amdsmi.amdsmi_init()
handles = amdsmi.amdsmi_get_processor_handles()
print(json.dumps({
    "bus": [amdsmi.amdsmi_get_gpu_device_bdf(h) for h in handles],
    "name": amdsmi.amdsmi_get_gpu_asic_info(handles[0])["market_name"],
    "link": amdsmi.amdsmi_topo_get_link_type(handles[0], handles[3]),
    "memory": amdsmi.amdsmi_get_gpu_memory_total(handles[1], amdsmi.AmdSmiMemoryType.VRAM),
}))
"""
    gpus = facts.gpus("gfx942", 4)
    assert json.loads(emulate(code)) == {
        "bus": [gpu.bus_id for gpu in gpus],
        "name": "AMD Instinct MI300X",
        "link": {"hops": 1, "type": 2},
        "memory": 192 << 30,
    }


def test_activate_and_deactivate_in_a_program_that_uses_nothing():
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
before = dict(os.environ)
from harness import emulated_machine as machine
from harness.errors import UsageError
assert machine.active() is None
machine.deactivate()
machine.activate("gfx950", gpus=2)
machine.activate("gfx950", gpus=2)
assert "torch" not in sys.modules and "triton" not in sys.modules
assert os.environ["IRIS_HARNESS_EMULATE"] == "gfx950 fast 2"
try:
    machine.activate("gfx942")
except UsageError as error:
    assert "is the emulated machine 'gfx950 fast 2' already" in str(error), error
else:
    raise AssertionError
try:
    machine.deactivate()
except RuntimeError as error:
    assert "stays the emulated machine" in str(error)
else:
    assert dict(os.environ) == before
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_torch_and_the_inventory_show_the_gpus_that_the_mask_chooses():
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from harness.devices import inventory, occupancy
gpus = inventory.visible("rocm")
inventory.check(gpus, 2)
print([(gpu.bus_id, gpu.uuid, gpu.arch) for gpu in gpus], occupancy.users_of(gpus[0]))
"""
    third, fourth = facts.gpus("gfx942", 4)[2:]
    expected = [(gpu.bus_id, gpu.uuid, "gfx942") for gpu in (third, fourth)]
    assert emulate(code, HIP_VISIBLE_DEVICES="2,3") == f"{expected} []\n"
