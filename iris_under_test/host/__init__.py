"""The host side: the ``Iris`` class, the symmetric heap, tensor creation, logging."""
