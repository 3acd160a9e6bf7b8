"""A folder for ``PYTHONPATH``: it holds ``sitecustomize``, which Python imports when it starts, and nothing else."""
