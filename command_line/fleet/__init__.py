"""A run of the suite on many machines: its plan, its folder, and the jobs of Slurm that work on it.

``plan`` reads what the user wants. ``submission`` writes the folder and submits the jobs, and ``scripts`` and ``job``
are what they run. ``health`` examines a machine, ``slurm`` calls Slurm's commands, ``progress`` shows the state, and
``attribution`` states whether a failure is one of a machine or of the software.
"""
