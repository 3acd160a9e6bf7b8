"""Times that the gate takes by itself: in turn, from the right copy of the library, and refused with a reason."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from command_line.gate import timing
from command_line.gate.statistics import SAME, SLOWER
from command_line.gate.times import compared
from command_line.preflight import check_request
from harness.errors import UsageError
from tests.gate.test_times import bench

REQUEST = check_request("emulated", None, "2", "ci", "iris_under_test")
SCREEN = Console(file=io.StringIO())


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """Return a function that takes times of a base and a head whose times differ by a factor. It returns the pairs and
    the folders in the order in which they were timed."""
    (tmp_path / "head" / "library").mkdir(parents=True)

    def measured(scale, stop_after=None):
        order = []
        stop = SimpleNamespace(signal=None)

        def process(options, folder, output, stop):
            order.append(folder.name)
            if len(order) == stop_after:
                stop.signal = 15
            output.mkdir(parents=True)
            noise = 0.001 * (len(order) % 5)
            return [bench(output / "bench.json", len(order), (scale if folder.name == "head" else 1.0) + noise)]

        monkeypatch.setattr(timing, "_bench", process)
        library = tmp_path / "head" / "library"
        pairs = timing.measured(tmp_path / "base", library, REQUEST, "all_reduce", tmp_path / "times", stop, SCREEN)
        return pairs, order

    return measured


@pytest.mark.parametrize(("scale", "answer"), [(1.0, SAME), (1.2, SLOWER)])
def test_both_sides_take_turns_and_a_planted_slowdown_is_told(timed, scale, answer):
    pairs, order = timed(scale)
    assert len(pairs) == timing.TURNS
    assert order[:4] == ["base", "head", "head", "base"]
    assert order.count("base") == order.count("head") == timing.TURNS
    assert all("base" in str(base) and "head" in str(head) for base, head in pairs)
    [(_, comparison)] = compared(pairs, medians=True)
    assert comparison.answer == answer


def test_a_signal_ends_it(timed):
    pairs, order = timed(1.0, stop_after=3)
    assert len(order) == 3
    assert len(pairs) == 1


def test_times_of_the_emulated_device_are_refused():
    with pytest.raises(UsageError, match="--bench: times are those of a GPU"):
        timing.check(REQUEST)


def test_a_benchmark_that_refuses_its_options_is_named(tmp_path):
    """The real command, in a process."""
    with pytest.raises(UsageError, match=r"--bench: .*nope"):
        timing._bench(["nope"], tmp_path, tmp_path / "out", SimpleNamespace(signal=None))
