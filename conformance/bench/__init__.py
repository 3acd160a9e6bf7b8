"""Requirements of measurements: do_bench and the bench module."""
