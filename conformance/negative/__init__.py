ONE_PROCESS = "it passes addresses of its own process to kernels"
