"""The modules of the library under test."""

import importlib


def module_of(env, path):
    """``host.distributed.topology`` of the implementation."""
    return importlib.import_module(f"{env.under_test.name}.{path}")
