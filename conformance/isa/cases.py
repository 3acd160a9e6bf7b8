"""The case type of contracts of compiled code."""

from dataclasses import dataclass
from typing import Annotated

from conformance.isa.catalogue import CALLS
from harness.cases import case_type
from harness.cases.values import OneOf


@case_type
@dataclass(frozen=True)
class ContractCase:
    """One call of ``catalogue.CALLS``."""

    call: Annotated[str, OneOf(tuple(CALLS))]
