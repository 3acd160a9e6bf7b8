"""Measuring: do_bench, and the bench module."""
