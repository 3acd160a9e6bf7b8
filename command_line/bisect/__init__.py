"""The first commit of the library with which a case fails.

revisions.py  a worktree of the library's repository, in which git bisects      trial.py  the case with one revision
"""
