"""Collectives, device functions and signals of a library that is reached through an adapter."""
