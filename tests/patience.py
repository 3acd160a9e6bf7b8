"""Pytest plugin that limits the reduction of a failing case by the number of cases alone.

The suite also limits it by seconds, in which a machine with other work to do gets less far.
"""

from fixtures import check

check.SHRINK_SECONDS = check.SHRINK_LIMIT = 250.0
