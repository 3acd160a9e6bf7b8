"""GEMM all-scatter in Gluon: ``gemm_all_scatter`` (the operation), ``matmul_wrapper`` (autograd), ``benchmark``."""
