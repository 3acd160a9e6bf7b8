"""A night of runs by a plan.

plan.py    the plan, a TOML file         night.py   the folder of a night: its seed, its state, its summary
leg.py     one run of the suite, which continues after a crash        corpus.py  reduced failures, which run first
union.py   the evidence of all attempts of a leg
"""
