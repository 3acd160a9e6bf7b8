"""The conformance suite: the requirements of an Iris implementation, as tests.

The docstring of a test file states the requirements; the code below it shows what each rank does, how the expected
result is computed with torch.distributed, and the property that is checked. In each folder, ``operations.py`` describes
each op once: its call in each form that users write, and the properties that tests depend on. Every test matrix of the
suite takes its ops from there. ``cases.py`` holds the case types. ``strategies.py`` holds the Hypothesis strategies;
only the controller imports it, while ranks import all other modules too. ``support`` holds code shared by several
folders.
"""
