"""Adapters: the specifications that name them, entry points, and the errors of one line."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import pytest
import torch

from command_line.preflight import check_request
from conformance.providers.cases import SizeCase
from fixtures import adapters
from fixtures.adapters import Adapter, applicability, discovery, heap
from fixtures.adapters.heap_provider import HeapProvider
from fixtures.adapters.protocol import CAPABILITIES
from fixtures.capabilities import Vocabulary, query
from fixtures.implementation import BUNDLED
from fixtures.tables import SUITE
from harness.cases import from_json, to_json
from harness.errors import UsageError
from harness.evidence import read_table
from tests.adapters.planted import installed

PROVIDER = "tests.adapters.heaps:MappedHeap"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, BUNDLED),
        ({"adapter": "iris"}, BUNDLED),
        ({"adapter": "symmetric-memory"}, "torch:symmetric-memory"),
        ({"provider": PROVIDER}, f"{PROVIDER}:heap-provider"),
    ],
)
def test_options_make_one_specification(options: dict[str, str], expected: str) -> None:
    spec = adapters.specification(BUNDLED, **options)
    assert spec == expected
    assert adapters.specification(spec) == spec
    assert check_request("cuda", None, "2", "gate", BUNDLED, **options).implementation == expected


@pytest.mark.parametrize(
    ("spec", "package"), [("my_iris", "my_iris"), ("my_iris:iris", "my_iris"), ("a.b:make:heap-provider", "a")]
)
def test_evidence_is_about_the_top_level_package(spec: str, package: str) -> None:
    assert adapters.package_of(spec) == package


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"adapter": "nvshmem"}, "no adapter 'nvshmem'; installed are iris, heap-provider, symmetric-memory"),
        ({"adapter": "heap-provider"}, "--adapter heap-provider: name the library too, with --implementation PACKAGE"),
        ({"adapter": "iris", "provider": PROVIDER}, "--provider names what is certified"),
        ({"implementation": "torch:nothing"}, "no adapter 'nothing'; installed are"),
        ({"provider": "my_heaps"}, "--provider: expected MODULE:FACTORY"),
        (
            {"implementation": "torch:symmetric-memory"},
            "--device emulated: torch:symmetric-memory runs on GPUs: choose",
        ),
        ({"provider": "no_such_package.heaps:make"}, "no package 'no_such_package' can be imported"),
    ],
)
def test_a_wrong_name_is_one_line(options: dict[str, str], wanted: str) -> None:
    arguments = {"implementation": BUNDLED, **options}
    with pytest.raises(UsageError) as refused:
        check_request("emulated", None, "2", "gate", **arguments)
    assert wanted in str(refused.value) and "\n" not in str(refused.value)


def test_an_adapter_of_an_installed_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "mine", "tests.adapters.test_adapters:Mine")
    installed(tmp_path, "broken", "tests.adapters.no_such_module:Mine")
    installed(tmp_path, "no-class", "tests.adapters.test_adapters:PROVIDER")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"mine", "broken", "no-class"} <= set(adapters.names())
    assert isinstance(adapters.adapter_of("torch:mine"), Mine)
    with pytest.raises(UsageError, match=r"the adapter broken .* cannot be loaded: ModuleNotFoundError"):
        adapters.adapter_of("torch:broken")
    with pytest.raises(UsageError, match=r"expected a subclass of fixtures\.adapters\.Adapter"):
        adapters.adapter_of("torch:no-class")


class Mine(Adapter):
    """An adapter that offers one collective and nothing else."""

    name = "mine"

    def collectives(self):  # type: ignore[no-untyped-def]
        return {"all_reduce:tree": lambda heap, output, source: None}


def test_what_is_overridden_is_offered() -> None:
    adapter = Mine("torch")
    assert adapter.offers("collective.all_reduce")
    for other in ("iris", "heap", "heap.close", "collective.all_gather", "device.load", "signal", "nonsense"):
        assert not adapter.offers(other)


def test_every_requirement_is_about_the_iris_api_or_about_what_adapters_offer() -> None:
    for identity, requirement in read_table(SUITE).items():
        kinds = {need in CAPABILITIES for need in requirement.needs}
        assert kinds == {identity.startswith(("PROVIDER-", "CALL-"))}, f"{identity} needs {requirement.needs}"


def test_a_requirement_about_another_kind_of_library_is_not_applicable() -> None:
    table = read_table(SUITE)

    def reasons(spec: str) -> dict[str, str]:
        adapter = adapters.adapter_of(spec)
        return {name: why for name, each in table.items() if (why := applicability.reason_against(adapter, each))}

    torch_memory = reasons("torch:symmetric-memory")
    assert torch_memory["RMA-PUT-001"] == "needs the Iris API, which the adapter symmetric-memory does not offer"
    assert not any(name.startswith(("PROVIDER-", "CALL-")) for name in torch_memory), "what it lacks is unsupported"
    heaps = reasons(f"{PROVIDER}:heap-provider")
    assert not any(name.startswith("PROVIDER-") for name in heaps) and "CALL-LOAD-001" in heaps
    own = reasons(BUNDLED)
    assert set(own) == {name for name in table if name.startswith(("CALL-", "PROVIDER-CL", "PROVIDER-CON"))}


@pytest.mark.slow
def test_what_a_library_of_the_kind_lacks_is_missing() -> None:
    adapter = adapters.adapter_of("tests.adapters.heaps:Plain:heap-provider")
    answer = query(adapter, ["heap", "heap.close"], Vocabulary())
    assert answer.states == {"heap": "present", "heap.close": "missing: adapter heap-provider does not offer it"}
    assert answer.lacking(["heap", "heap.close"]) == "needs heap.close: adapter heap-provider does not offer it"


@pytest.mark.nightly
def test_optional_methods_of_a_provider_are_read_from_its_class() -> None:
    with_both, plain = HeapProvider(PROVIDER), HeapProvider("tests.adapters.heaps:Plain")
    with_both.check()
    assert with_both.offers("heap.close") and with_both.offers("heap.contains")
    assert plain.offers("heap") and not plain.offers("heap.close") and not plain.offers("heap.contains")
    with pytest.raises(UsageError, match="has no function or class 'nothing'"):
        HeapProvider("tests.adapters.heaps:nothing").check()
    with pytest.raises(UsageError, match=r"cannot be imported: ModuleNotFoundError: No module named 'tests\.nowhere'"):
        HeapProvider("tests.nowhere:make").check()


def test_memory_of_a_heap_counts_to_its_end_and_not_into_a_neighbour() -> None:
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 4 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert heap.mapped(start, 4 * page, [start], shared=True) == 4 * page
    assert heap.mapped(start + page, 2 * page, [start + page], shared=True) == 2 * page
    assert heap.mapped(8, page, [8], shared=False) == 0, "nothing is mapped there"
    private = torch.zeros(1000)
    assert heap.mapped(private.data_ptr(), 4000, [], shared=False) == 4000
    assert heap.mapped(private.data_ptr(), 4000, [], shared=True) == 0, "no other process can have it"


def test_a_case_of_a_provider_keeps_its_form() -> None:
    assert from_json(to_json(SizeCase(4097), {})) == SizeCase(4097)


def test_the_group_of_entry_points_is_the_documented_one() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
    assert f'[project.entry-points."{discovery.GROUP}"]' in page
