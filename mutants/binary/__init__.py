"""Mutants of compiled gfx942 machine code, run on kernels that warm ranks have compiled.

``operators``  the changes of a listing
``recorder``   a pytest plugin that writes down the calls that the suite makes on the ranks
``ranks``      the ranks' side: change the machine code of one kernel
``session``    the program that repeats the recorded calls with each mutant

The recorded calls are repeated without pytest and without evidence, so no changed machine code can enter a certificate.
"""
