"""Runs of the suite on mutants: ``trial`` runs the tests of one, ``pool`` runs many at a time, ``machine_code`` the
binary ones. What the mutants are is in the package ``mutants``.
"""
