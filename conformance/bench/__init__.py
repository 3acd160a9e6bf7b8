"""Requirements of measurements: do_bench and the bench module."""

ONE_PROCESS = "the library calls functions of the test"
