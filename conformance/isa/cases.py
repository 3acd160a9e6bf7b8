"""The case type of contracts of compiled code."""

from dataclasses import dataclass
from typing import Annotated

from conformance.isa.catalogue import CALLS, REDUCTIONS
from harness.cases import case_type
from harness.cases.values import OneOf


@case_type
@dataclass(frozen=True)
class ContractCase:
    """One call of the catalogue, of ``CALLS`` or ``REDUCTIONS``."""

    call: Annotated[str, OneOf((*CALLS, *REDUCTIONS))]
