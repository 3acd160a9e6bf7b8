"""The conformance suite: what an Iris must do, one file per op, to be read from top to bottom.

A file states what is required, holds the kernel that exercises it in the form in which users write it, says what
each rank does, what torch.distributed says, and the property. Modules are imported on ranks too.
"""
