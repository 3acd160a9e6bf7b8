"""Brackets, deltas and marks of a case, made from the samples around it."""

import re
from pathlib import Path

import pytest

from harness import telemetry
from harness.telemetry.fields import FIELDS
from harness.telemetry.source import plain_bus_id, plain_uuid
from harness.telemetry.windows import KEPT, Track

NAMES = ("power", "energy", "ecc_corrected", "throttle_thermal", "violation_thermal")


def track(*samples, stamps=None, names=NAMES):
    """A track with a look at each time, a tenth of a second long; each sample is (time, values)."""
    made = Track(names)
    for index, (at, values) in enumerate(samples):
        missing = {name: "why" for name in names if name not in values}
        made.add(at, at + 0.1, stamps[index] if stamps else None, values, missing)
    return made


def full(power=100.0, energy=0.0, ecc=0, hot=False, violation=0):
    return dict(zip(NAMES, (power, energy, ecc, hot, violation), strict=True))


def steady(count=6):
    return [(float(at), full(energy=10.0 * at)) for at in range(1, count + 1)]


def test_the_bracket_runs_from_the_last_sample_before_to_the_first_after():
    window = track(*steady()).window(2.5, 3.5)
    assert window["bracket"] == [2.0, 4.1]
    assert window["samples"] == 3
    assert window["deltas"]["energy"] == 20.0


def test_a_case_of_3_ms_is_told_within_the_whole_bracket():
    window = track(*steady()).window(2.500, 2.503)
    assert (window["bracket"], window["samples"], window["deltas"]["energy"]) == ([2.0, 3.1], 2, 10.0)


def test_a_look_that_overlaps_the_case_is_neither_before_nor_after_it():
    window = track(*steady()).window(2.05, 4.05)
    assert window["bracket"] == [1.0, 5.1]


def test_samples_exactly_at_the_ends_count():
    assert track(*steady()).window(2.1, 4.0)["bracket"] == [2.0, 4.1]


def test_without_a_sample_after_it_there_is_no_window_yet():
    assert track(*steady()).window(5.5, 6.05) is None
    assert track().window(1.0, 2.0) is None


def test_without_a_sample_before_it_there_is_a_reason():
    assert track(*steady()).window(0.5, 2.5) == "no sample was taken before it"


def test_many_cases_between_two_samples_share_what_is_said():
    samples = track(*steady())
    assert samples.window(2.5, 2.6) is samples.window(2.7, 2.8)
    assert samples.window(3.5, 3.6)["bracket"] != samples.window(2.5, 2.6)["bracket"]


def test_a_repeated_stamp_is_counted_and_dropped():
    samples = track(*steady(), stamps=[10, 20, 20, 20, 30, 40])
    assert samples.repeated == 2
    assert samples.whole.readings == 3  # without the first, whose age is unknown


def test_with_stamps_a_sample_may_be_as_old_as_the_last_look_with_another():
    samples = track(*steady(), stamps=[10, 20, 20, 20, 30, 40])
    # Looks at 2, 3 and 4 saw the same; what the look at 5 saw was measured after the look at 4 began.
    assert [(r.earliest, r.latest) for r in samples.readings] == [(1.0, 2.1), (4.0, 5.1), (5.0, 6.1)]
    assert samples.window(2.5, 3.9)["bracket"] == [1.0, 5.1]
    assert samples.window(2.5, 4.5)["bracket"] == [1.0, 6.1]


def test_long_tracks_are_bounded_and_say_so():
    samples = track(*steady(KEPT + 50))
    assert len(samples.readings) == KEPT
    assert samples.window(10.0, 11.0) == "no sample was taken before it"
    assert samples.whole.readings == KEPT + 50


@pytest.mark.parametrize(("start", "end"), [(50.0, 20.0), (4294967295.0, 3.0)])
def test_a_counter_that_went_backwards_is_unavailable(start, end):
    window = track((1.0, full(energy=start)), (2.0, full(energy=end)), (3.0, full(energy=start + 1))).window(1.5, 2.5)
    assert "energy" not in window["deltas"]
    assert window["unavailable"]["energy"].startswith(f"it went backwards, from {start:g} to {end:g}")


@pytest.mark.parametrize("end", [5.0, 150.0])
def test_a_counter_that_went_backwards_behind_a_missing_sample_is_unavailable(end):
    """As after a reset of the GPU: no answer, then counting from 0, perhaps past where it was."""
    gone = {"power": 100.0}
    samples = track((1.0, full(energy=100.0)), (2.0, gone), (3.0, full(energy=2.0)), (4.0, full(energy=end)))
    window = samples.window(1.5, 3.5)
    assert "energy" not in window["deltas"]
    assert window["unavailable"]["energy"].startswith("it went backwards, from 100 to 2")


@pytest.mark.parametrize("times", [(5.0, 5.0), (9.0, 5.0)])
def test_no_time_between_samples_or_a_clock_set_back_is_no_delta(times):
    samples = Track(NAMES)
    for index, at in enumerate(times):
        samples.add(at, at, None, full(energy=float(index)), {})
    window = samples.whole.to_json()
    assert window["deltas"] == {}
    assert window["unavailable"]["energy"] == "no time passed between its samples"


def test_a_counter_that_stands_still_under_power_is_stuck_and_zero_without():
    still = [(at, full(energy=7.0)) for at in (1.0, 2.0, 3.0)]
    assert track(*still).window(1.5, 2.5)["unavailable"]["energy"] == "the counter stood still at 100 W or more"
    idle = [(at, full(energy=7.0, power=0.0)) for at in (1.0, 2.0, 3.0)]
    assert track(*idle).window(1.5, 2.5)["deltas"]["energy"] == 0


def test_what_is_missing_has_its_reason_and_is_never_a_zero():
    nothing = [(at, {}) for at in (1.0, 2.0, 3.0)]
    window = track(*nothing).window(1.5, 2.5)
    assert window["unavailable"] == dict.fromkeys(NAMES, "why")
    assert (window["gauges"], window["deltas"], window["active"], window["marks"]) == ({}, {}, {}, [])


def test_a_gauge_that_is_missing_sometimes_tells_the_rest_and_how_often():
    window = track((1.0, full()), (2.0, {**full(power=300.0)}), (3.0, {"energy": 5.0})).window(1.5, 2.5)
    assert window["gauges"]["power"] == [100.0, 300.0]
    assert window["unavailable"]["power"] == "in 1 of 3 samples: why"


def test_a_counter_that_is_missing_at_an_end_has_no_delta():
    window = track((1.0, {}), (2.0, full()), (3.0, full(energy=9.0))).window(1.5, 2.5)
    assert "energy" not in window["deltas"]
    assert window["unavailable"]["energy"] == "why"


def test_marks_name_what_grew_and_what_was_on():
    window = track((1.0, full()), (2.0, full(hot=True)), (3.0, full(ecc=2, violation=500))).window(1.5, 2.5)
    assert window["marks"] == [
        "memory error (RAS/ECC): ecc_corrected +2",
        "thermal violation: violation_thermal +500 ns",
        "thermal violation: throttle_thermal in 1 samples",
    ]


def test_errors_from_before_the_case_are_no_mark():
    window = track(*[(at, full(ecc=40, energy=at)) for at in (1.0, 2.0, 3.0)]).window(1.5, 2.5)
    assert window["marks"] == []


def test_every_gate_has_a_field_that_feeds_it():
    marks = {field.mark for field in FIELDS.values() if field.mark}
    assert marks == {"memory error (RAS/ECC)", "link error", "thermal violation"}
    assert all(not field.mark for field in FIELDS.values() if field.kind == "gauge")


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("GPU-ABCDEF0123456789", "abcdef0123456789"),
        ("GPU-12345678-1111-2222-3333-444444444444", "12345678111122223333444444444444"),
        ("61626364-6566-3031-3233-343536373839", "abcdef0123456789"),  # the same, as bytes
        ("00000000-0000-0000-0000-000000000000", "0" * 32),
    ],
)
def test_uuids_compare_across_libraries(spelling, plain):
    assert plain_uuid(spelling) == plain


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("0000:c1:00.0", (0, 0xC1, 0, 0)),
        ("00000000:C1:00.0", (0, 0xC1, 0, 0)),
        ("C1:00.3", (0, 0xC1, 0, 3)),
        ("0001:02:1f", (1, 2, 31, 0)),
        ("", None),
        ("N/A", None),
        ("a:b:c:d:e.x", None),
    ],
)
def test_bus_ids_compare_across_libraries(spelling, plain):
    assert plain_bus_id(spelling) == plain


def test_the_guide_names_every_field_with_its_unit():
    guide = (Path(__file__).resolve().parents[2] / "docs" / "telemetry.md").read_text()
    fields = {}
    for names, unit, rest in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\S+) \| (.*)\|$", guide, re.MULTILINE):
        fields.update(dict.fromkeys(re.findall(r"`(\w+)`", names), (unit, "marks: " in rest)))
    assert fields == {
        name: (field.unit or ("state" if field.kind == "state" else "count"), bool(field.mark))
        for name, field in FIELDS.items()
    }


def test_sources_only_read():
    folder = Path(telemetry.__file__).parent
    for path in sorted(folder.glob("*_source.py")):
        calls = set(re.findall(r"\b(?:nvml[A-Z]|amdsmi_)\w+", path.read_text()))
        assert len(calls) > 10
        for call in calls:
            assert not re.search(r"Set|Clear|Reset|_set_|_reset|_clean|_control|_create", call), f"{path.name}: {call}"
