"""Heap providers: a symmetric heap and its table of peer bases, judged with the suite's own kernels."""

ONE_PROCESS = "it compares addresses within the process of the library"
