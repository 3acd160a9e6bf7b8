"""Mutants: small wrong changes of the library, of its machine code and of the harness, and what killed them.

``iris-harness mutants`` (``command_line``) runs the suite on them. Here is what they are and how results are kept:

``mutant``     one change, with a stable id
``listed``     defects of the bundled library that people listed, and those that users reported in public
``generated``  operators on Python source: of the library, and of the harness
``binary``     operators on machine code, and the ranks' side of running them
``planting``   copies of the library with a change
``selection``  the tests that each mutant is run against
``matrix``     the kill matrix: results, schema, argued equivalents (``equivalent.toml``)
``page``       the matrix as Markdown
``plain``      a plain test suite, whose kills are shown next to those of the conformance suite
"""
