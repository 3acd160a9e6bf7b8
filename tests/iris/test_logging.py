"""The format of a log line, and the level that the environment sets."""

import datetime
import io
import logging

import pytest

import iris_under_test
from iris_under_test.host import logging as iris_logging
from iris_under_test.host.logging.logging import LEVEL_VARIABLE
from tests.iris.ranks import run_checks

NOON = datetime.datetime(2026, 1, 2, 9, 5, 1).timestamp()
"""Local time, as the log's clock is."""


@pytest.fixture
def lines(monkeypatch):
    """The logger as a fresh process has it, writing into a list that the test reads."""
    logger = iris_under_test.logger
    before, level = logger.handlers[:], logger.level
    logger.handlers[:] = []
    logger.setLevel(logging.NOTSET)
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    text = io.StringIO()

    def read():
        for handler in logger.handlers:
            handler.setStream(text)
        return text.getvalue().splitlines()

    yield read
    logger.handlers[:] = before
    logger.setLevel(level)


def line(level, message, *arguments, **attributes):
    record = logging.LogRecord("iris", level, "file", 1, message, arguments, None)
    record.created = NOON
    vars(record).update(attributes)
    return iris_logging.IrisFormatter().format(record)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, "09:05:01 INFO [Iris] [?/?] found 3"),
        ({"iris_rank": 1, "iris_num_ranks": 4}, "09:05:01 INFO [Iris] [1/4] found 3"),
        ({"iris_rank": 0, "iris_num_ranks": 1}, "09:05:01 INFO [Iris] [0/1] found 3"),
        ({"iris_rank": 0}, "09:05:01 INFO [Iris] [0/?] found 3"),
        ({"iris_module": "heap"}, "09:05:01 INFO [Iris] [?/?] [heap] found 3"),
        ({"iris_rank": 2, "iris_num_ranks": 4, "iris_module": "heap"}, "09:05:01 INFO [Iris] [2/4] [heap] found 3"),
    ],
)
def test_the_format(attributes, wanted):
    assert line(logging.INFO, "found %d", 3, **attributes) == wanted


def test_text_of_an_exception_follows():
    record = logging.LogRecord("iris", logging.ERROR, "file", 1, "lost", (), (ValueError, ValueError("why"), None))
    assert iris_logging.IrisFormatter().format(record).endswith("ERROR [Iris] [?/?] lost\nValueError: why")


@pytest.mark.parametrize("name", ["DEBUG", "INFO", "WARNING", "ERROR", " warning "])
def test_the_environment_sets_the_level(lines, monkeypatch, name):
    monkeypatch.setenv(LEVEL_VARIABLE, name)
    iris_logging.configure()
    lines()
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        iris_logging.log(level, "text", 0, 2)
    least = getattr(logging, name.strip().upper())
    shown = [logging.getLevelName(level) for level in (10, 20, 30, 40) if level >= least]
    assert [text.split()[1:] for text in lines()] == [[level, "[Iris]", "[0/2]", "text"] for level in shown]


def test_without_it_the_level_is_info(lines):
    iris_logging.configure()
    assert iris_under_test.logger.level == logging.INFO


def test_a_level_that_the_program_sets_goes_first(lines, monkeypatch):
    monkeypatch.setenv(LEVEL_VARIABLE, "ERROR")
    iris_under_test.set_logger_level(iris_under_test.DEBUG)
    iris_logging.log(logging.INFO, "text")
    assert iris_under_test.logger.level == logging.DEBUG


def test_what_the_application_set_is_left_alone(lines, monkeypatch):
    monkeypatch.setenv(LEVEL_VARIABLE, "nonsense")
    mine = logging.NullHandler()
    iris_under_test.logger.addHandler(mine)
    iris_under_test.logger.setLevel(logging.ERROR)
    iris_logging.configure()
    assert iris_under_test.logger.handlers == [mine]
    assert iris_under_test.logger.level == logging.ERROR


def test_no_level_by_that_name(lines, monkeypatch):
    monkeypatch.setenv(LEVEL_VARIABLE, "LOUD")
    with pytest.raises(ValueError, match=r"IRIS_LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR, got 'LOUD'"):
        iris_logging.configure()


def one_bad_environment(ctx, rank, num_ranks):
    """Only rank 1 has it, and every rank raises."""
    ctx.info("sets a level, as another instance would")
    iris_under_test.logger.setLevel(logging.NOTSET)
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setenv(LEVEL_VARIABLE, "LOUD")
        with pytest.raises(ValueError if rank == 1 else RuntimeError, match=r"LOUD|setting up .* ranks \[1\]"):
            iris_under_test.iris(2**16)
    iris_under_test.logger.setLevel(logging.INFO)


def test_a_bad_level_on_one_rank_is_told_on_all():
    assert run_checks([one_bad_environment], 2, 2**18, emulated=False) == {"one_bad_environment": ""}
