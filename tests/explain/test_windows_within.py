"""What `explain` says of windows within a pattern: in words, where they are tested, and what is kept."""

import pytest
import step_strategies as steps
import strategies
from rendering import to_ceql

import cer_gpu


def explained(pattern):
    query = cer_gpu.compile(f"SELECT * FROM S WHERE {pattern}", time_column="ts", time_unit="s")
    return query.explain()


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("(A ; B WITHIN 90 SECONDS) ; C", "the last of these is at most 1 MINUTES 30 SECONDS after the first of these"),
        ("(A ; B WITHIN 2 EVENTS) ; C", "the last of these is at most 2 EVENTS after the first of these"),
        ("(A ; B WITHIN 1.5 [x]) ; C", "the last of these is at most 1.5 [x] after the first of these"),
        ("A ; B WITHIN 2 EVENTS EACH STEP", "each event is at most 2 EVENTS after the one before"),
    ],
)
def test_a_window_within_a_pattern_is_a_filter_between_events(pattern, line):
    explanation = explained(pattern)
    assert any(line in words for words in explanation.words)
    (filter_,) = explanation.to_dict()["relations"]
    assert (filter_["text"], filter_["separable"]) == (line, True)


def test_gaps_at_each_step_are_tested_on_the_way_from_step_to_step():
    (filter_,) = explained("A ; B+ ; C WITHIN 9 EVENTS, 2 EVENTS EACH STEP").to_dict()["relations"]
    assert filter_["places"] == ["A ; B: zone maps", "B ; next B: zone maps", "B ; C: zone maps"]


def test_an_absence_for_a_time_is_tested_where_its_event_is_found():
    explanation = explained("A ; B ; !C FOR 1 SECONDS")
    (filter_,) = explanation.to_dict()["relations"]
    assert filter_["places"] == ["B ; C: zone maps"]
    assert "  then no C event until 1 second after the last event have passed" in explanation.words


@pytest.mark.parametrize(
    ("pattern", "window"),
    [
        ("A ; B ; C WITHIN 2 SECONDS EACH STEP", "4 seconds"),
        ("(A ; B+ ; C WITHIN 2 SECONDS)", "2 seconds"),
        ("A ; !B FOR 5 SECONDS", "5 seconds"),
        ("A ; B ; !C FOR 5 SECONDS WITHIN 1 SECONDS", "6 seconds"),
    ],
)
def test_the_window_of_what_is_kept_is_told(pattern, window):
    assert explained(pattern).to_dict()["plan"]["window"]["text"] == window


@pytest.mark.parametrize("pattern", ["A ; B ; !C FOR 5 SECONDS", "A ; B+ WITHIN 2 SECONDS EACH STEP"])
def test_what_nothing_bounds_is_told(pattern):
    plan = explained(pattern).to_dict()["plan"]
    assert plan["window"] is None
    assert "without WITHIN nothing is ever dropped" in plan["memory"]


@strategies.property_test(0.2)
def test_random_windows_are_explained_and_drawn(data):
    query = data.draw(steps.queries(related=data.draw(strategies.st.booleans())))
    explanation = cer_gpu.compile(to_ceql(query), time_column="ts").explain(detail="all")
    assert "\0" not in str(explanation)
    assert explanation.to_dot()
    assert explanation.to_svg()
