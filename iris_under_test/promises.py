"""Promises of this library beyond the Iris API. The conformance suite holds it, and every copy of it, to that."""

__all__ = ["COMPILED_CODE"]

COMPILED_CODE = True
"""Its kernels keep the parts ``own`` of the contracts in conformance/isa/contracts: docs/isa.md, "Contracts"."""
