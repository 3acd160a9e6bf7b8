"""Which opcodes have a test of their own: ``@covers("ds_read_b32")`` marks those that no table of semantics
describes."""

COVERED: set[str] = set()


def covers(*names: str):
    """The decorated test checks these opcodes; blank-separated names may stand in one string."""

    def mark(test):
        for text in names:
            COVERED.update(text.split())
        return test

    return mark
