"""Access to modules of the library under test."""

import importlib


def module_of(env, path):
    """Import a module of the library under test by its path, as ``host.distributed.topology``."""
    return importlib.import_module(f"{env.under_test.name}.{path}")
