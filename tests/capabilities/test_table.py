"""The suite's table: every requirement has an API and needs, and every need is a capability that some library has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import conformance
from conformance.collectives.operations import COLLECTIVES
from conformance.x.operations import TILES, has_methods
from fixtures import judged
from fixtures.adapters import adapter_of
from fixtures.adapters.protocol import CAPABILITIES, is_capability
from fixtures.capabilities import ALL, Vocabulary, query
from fixtures.capabilities.declaration import Declaration
from fixtures.implementation import BUNDLED
from fixtures.tables import SUITE, vocabulary_of
from harness.errors import UsageError
from harness.evidence import APIS, EXTENDED, PUBLISHED, read_table

TABLE = read_table(SUITE)
KNOWN = vocabulary_of(SUITE)
BEYOND = "docs/spec/extensions.md"


@pytest.mark.parametrize("identity", TABLE)
def test_every_requirement_has_a_level_and_needs(identity: str) -> None:
    requirement = TABLE[identity]
    assert requirement.api in APIS
    assert requirement.needs and requirement.capabilities, "a need with a parameter fits a name that it covers"
    kinds = {is_capability(need) for need in requirement.needs}
    assert len(kinds) == 1, "about the Iris API, or about what adapters offer"


def test_what_the_specification_calls_beyond_the_published_api_is_extended() -> None:
    for identity, requirement in TABLE.items():
        if requirement.source.startswith(BEYOND) or set(requirement.needs) & KNOWN.extended:
            assert requirement.api == EXTENDED, identity
    assert {TABLE[name].api for name in ("RMA-PUT-001", "CCL-ALLGATHER-001", "HOST-LIFE-001")} == {PUBLISHED}


@pytest.mark.slow
def test_the_bundled_library_has_every_capability_and_one_that_is_misspelt_is_found() -> None:
    """Planted: a name that no library has."""
    known = replace(KNOWN, names=KNOWN.names | {"ccl.all_gahter"})
    states = query(adapter_of(BUNDLED), known.names, known).states
    assert [name for name, state in states.items() if not state.startswith("present")] == ["ccl.all_gahter"]


@pytest.mark.slow
def test_the_published_library_lacks_what_is_extended_and_nothing_else_that_is_needed_at_its_level() -> None:
    states = query(adapter_of("tests.published_iris"), KNOWN.names, KNOWN).states
    missing = {name for name, state in states.items() if state.startswith("missing")}
    methods = {name for name in KNOWN.extended if name.startswith(("DeviceContext.", "IrisDeviceCtx."))}
    limits = {"bench.State.use_gluon"}
    assert KNOWN.extended - missing == methods | limits, "its device code is that of the bundled library"
    needed = {name for each in TABLE.values() if each.api == PUBLISHED for name in each.capabilities}
    assert {name for name in needed & missing if name not in KNOWN.extended} == set()


def test_a_declaration_cannot_hide_a_form_of_an_op_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that make cases look up forms that a library may lack. Each such form is needed by a requirement, which
    is then unsupported; the API ``extended`` declares them all. Planted: a form that no requirement needs."""
    looked_up: set[str] = set()
    monkeypatch.setattr(judged, "offers", lambda *names: not looked_up.update(names))
    for op in COLLECTIVES.values():
        op.fast(2)
    for name in TILES:
        has_methods(name)
    assert {"ccl.Config(protocol)", "DeviceContext.all_gather", "DeviceContext.reduce_scatter"} <= looked_up
    assert unseen(looked_up, KNOWN) == set()
    assert unseen({*looked_up, "bench.State.skip"}, KNOWN) == {"bench.State.skip"}
    everything = Declaration(EXTENDED)
    assert [name for name in sorted(KNOWN.needed | KNOWN.extended) if not everything.states(name, KNOWN)] == []
    for name in looked_up:
        assert not replace(everything, lacks={name: "no"}).states(name, KNOWN)


def unseen(looked_up: set[str], known: Vocabulary) -> set[str]:
    """Return the names without which cases are left out, and no requirement is unsupported."""
    return looked_up - known.needed


def test_capabilities_of_adapters_are_needed_by_some_requirement() -> None:
    assert set(CAPABILITIES) == {need for each in TABLE.values() for need in each.needs if is_capability(need)}


def test_a_malformed_level_or_need_is_one_line(tmp_path: Path) -> None:
    entry = '[[requirement]]\nid = "A-1"\nstatement = "It does."\nsource = "x"\ncovers = ["f"]\n'
    path = tmp_path / "requirements.toml"
    for line, wanted in (
        ('api = "all"', "its api must be published or extended, got 'all'"),
        ("needs = 3", "its needs must be a list of names"),
        ('needs = [""]', "its needs must be a list of names"),
    ):
        path.write_text(entry + line, encoding="utf-8")
        with pytest.raises(UsageError) as refused:
            read_table(path)
        assert "requirement A-1" in str(refused.value) and wanted in str(refused.value)
    path.write_text(entry, encoding="utf-8")
    assert read_table(path)["A-1"].needs == (), "a table of the user's own needs nothing that it does not state"
    path.write_text(f'extended = ["f"]\n{entry}', encoding="utf-8")
    assert (read_table(path)["A-1"].needs, read_table(path)["A-1"].api) == (("f",), EXTENDED)


def test_cases_of_the_published_level_have_nothing_that_only_the_extended_one_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from conformance.ops.operations import PRODUCTS

    monkeypatch.setattr(judged, "vocabulary", KNOWN)
    monkeypatch.setattr(judged, "capabilities", ALL)
    monkeypatch.setattr(judged, "api", PUBLISHED)
    from conformance.collectives import test_far, test_repeat, test_waits
    from conformance.ops.strategies import edges

    for op in ("all_gather", "all_to_all", "all_reduce", "reduce_scatter"):
        assert COLLECTIVES[op].fast(2) == ()
        cases = [*test_waits.cases(2, op), *(test_repeat.cases(2, op) if COLLECTIVES[op].reduces else [])]
        assert cases and all(not case.protocol and case.reduce == "sum" and not case.async_op for case in cases)
        assert all(case.variant != "two_shot_push" for case in cases)
        if op != "reduce_scatter":
            assert {case.arguments[2] for case in test_far.cases(2, op)} <= (
                {"triton"} if op == "all_reduce" else {"triton", "gluon"}
            )
    for op in PRODUCTS:
        assert all(case.calls == 1 and not case.async_op for case in edges(op))
    assert not any(case.biased for case in edges("matmul_all_reduce"))
    monkeypatch.setattr(judged, "api", EXTENDED)
    assert any(case.biased for case in edges("matmul_all_reduce")) and COLLECTIVES["all_gather"].fast(2)


def test_rank_functions_do_not_read_what_only_the_controller_knows() -> None:
    """``fixtures.judged`` is set in the controller only: a function that reads it on a rank would see the defaults."""
    folder = Path(conformance.__path__[0])
    for path in folder.rglob("*.py"):
        for function in path.read_text(encoding="utf-8").split("\ndef ")[1:]:
            name, body = function.partition("(")[::2]
            if "judged." in body.split("\n@", 1)[0] and "env" in body.partition(")")[0]:
                raise AssertionError(f"{path.name}: {name} is called on ranks and reads judged")
