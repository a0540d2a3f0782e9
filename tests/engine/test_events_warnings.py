"""Warnings of remarks on events: types that none has, events without a key, absences that the end decided."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

import cer_gpu

EVENTS = pa.table({"type": ["Page View", "Buy", "Buy"], "user": ["a", None, "a"], "ts": [1, 2, 3]})


def warned(act):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    assert {each.category for each in caught} <= {cer_gpu.EventsWarning}
    assert {each.filename for each in caught} <= {__file__}
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    "act",
    [
        lambda query: query.evaluate(EVENTS),
        lambda query: query.stream(EVENTS).read_all(),
        lambda query: query.count(EVENTS),
        lambda query: query.evaluate(EVENTS, threads=2),
    ],
)
def test_a_type_that_no_event_has_is_a_warning_once_the_events_are_read(act):
    query = cer_gpu.compile("SELECT * FROM S WHERE `Page view` AS p ; Buy AS b")
    assert warned(lambda: act(query)) == ["no event has the type 'Page view'; did you mean 'Page View'?"]


def test_nothing_is_said_where_all_is_there_or_not_all_was_read():
    query = cer_gpu.compile("SELECT * FROM S WHERE Buy OR Sell LIMIT 1")
    assert warned(lambda: cer_gpu.compile("SELECT * FROM S WHERE Buy").evaluate(EVENTS)) == []
    assert warned(lambda: query.evaluate(EVENTS, limit=1)) == []
    assert warned(lambda: query.evaluate(EVENTS.slice(0, 0))) == []


def test_events_without_a_key_and_what_the_end_decided_are_warnings():
    query = cer_gpu.compile("SELECT * FROM S WHERE Buy PARTITION BY [user]")
    assert [text for text in warned(lambda: query.evaluate(EVENTS)) if "user" in text] != []
    query = cer_gpu.compile("SELECT * FROM S WHERE Buy ; !Sell WITHIN 5 EVENTS")
    assert [text for text in warned(lambda: query.evaluate(EVENTS)) if "the input ends" in text] != []


def test_warnings_are_given_once_for_each_place():
    query = cer_gpu.compile("SELECT * FROM S WHERE Nothing")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            query.evaluate(EVENTS)
    assert len(caught) == 1
