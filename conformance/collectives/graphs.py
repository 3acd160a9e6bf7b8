"""Device graphs of the work that a test enqueues."""

import torch


def captured(enqueue):
    """Capture the work that ``enqueue()`` enqueues and return the graph. The current stream is restored afterwards."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            enqueue()
    finally:
        torch.cuda.set_stream(stream)
    return graph
