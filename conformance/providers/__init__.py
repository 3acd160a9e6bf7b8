"""Heap providers: a symmetric heap and its table of peer bases, judged with the suite's own kernels."""

TOGETHER = "it compares addresses within the process of the library"
