"""Requirements of measurements: do_bench and the bench module."""

TOGETHER = "the library calls functions of the test"
