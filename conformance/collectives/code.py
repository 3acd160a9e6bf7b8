"""The code of collectives and messages: each build of their kernels keeps a contract of the case's op and variant."""

from __future__ import annotations

from typing import Any

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import described
from conformance.isa.builds import check_builds
from conformance.isa.contract import Contract, contracts
from fixtures.worker import Env


def check_code(env: Env, case: CollectiveCase, place: int, members: int, contract: Contract | None = None) -> Any:
    """Return the first fault in the code that this case has launched so far, or None; see ``check_builds``.

    In an op with a root each member reads its own kernels, as the root may have another one. ``contract``: that of the
    case, which by default is that of its op and variant. Where the case leaves the variant to the library, code is
    right that keeps the contract of one of them.
    """
    allowed = [contract] if contract is not None else _contracts_of(case)
    return check_builds(env, case.op, allowed, place, members, shared=not described(case.op).root)


def _contracts_of(case: CollectiveCase) -> list[Contract]:
    """Return the contracts of the algorithms that the case allows."""
    known = contracts()
    if own := known.get(f"{case.op} {case.protocol or case.variant}".strip()):
        return [own]
    if case.protocol or case.variant:
        return []
    left = [known[name] for one in described(case.op).variants if (name := f"{case.op} {one.name}") in known]
    # One that allows a relaxed flag would excuse the others; no library that promises its code chooses it by itself.
    return [one for one in left if not one.own.relaxed]
