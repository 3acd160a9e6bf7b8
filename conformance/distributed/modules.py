"""Access to modules of the library under test."""


def module_of(env, path):
    """Return a module of the library under test by its path, as ``host.distributed.topology``."""
    return env.module(f".{path}")
