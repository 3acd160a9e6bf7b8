"""Data flow through the registers of compiled kernels, to the addresses of their accesses.

``Roots`` has what is known about a kernel's arguments; ``amdgcn.addresses`` and ``ptx.addresses`` follow the code, and
``origin.origins`` judges what they found.
"""
