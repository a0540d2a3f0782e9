"""The reference of correlations, by examples that can be followed by hand."""

import pytest

from tests.sigma import correlation_reference as ref

DETECTIONS = [{"title": name, "name": name, "detection": name} for name in "abc"]


def found(correlation, events, *inner):
    """What a correlation finds; an event is its time in seconds, the rules that occur at it, and other fields."""
    rows = [{ref.TIME: 1000 * time, "rules": rules, **fields} for time, rules, fields in events]
    documents = [*DETECTIONS, *({"title": name, "name": name, "correlation": of} for name, of in inner)]
    documents.append({"title": "outer", "name": "outer", "correlation": correlation})
    rules = ref.CorrelatedRules(documents, rows, lambda document, row: document["detection"] in row["rules"])
    return rules.found(documents[-1])


def at(*times, rules="a", **fields):
    return [(time, rules, fields) for time in times]


def test_a_count_fires_where_it_crosses_its_threshold_and_again_after_it_fell():
    count = {"type": "event_count", "rules": ["a"], "timespan": "10s", "condition": {"gte": 3}}
    assert found(count, at(0, 1, 10, 11, 12)) == [(0, 1, 2), (1, 2, 3), (2, 3, 4)]
    assert found(count, at(0, 1, 2, 20, 21, 22)) == [(0, 1, 2), (3, 4, 5)]
    assert found(count, at(0, 1, 2, 12, 13)) == [(0, 1, 2)]
    assert found(count, at(0, 1, 2, 11, 13, 14, 15)) == [(0, 1, 2), (1, 2, 3), (3, 4, 5)]


def test_a_window_holds_events_that_are_exactly_a_time_span_before():
    count = {"type": "event_count", "rules": ["a"], "timespan": "10s", "condition": {"eq": 2}}
    assert found(count, at(0, 10)) == [(0, 1)]
    assert found(count, at(0, 11)) == []


def test_groups_are_apart_and_an_event_without_a_key_is_in_none():
    count = {"type": "event_count", "rules": ["a"], "timespan": "1m", "group-by": ["user"], "condition": {"gte": 2}}
    events = [*at(0, user="x"), *at(1, user="y"), *at(2, user=None), *at(3, 4, user="x"), *at(5, user="y")]
    assert found(count, events) == [(0, 3), (1, 5)]


@pytest.mark.parametrize(
    ("kind", "more", "value", "expected"),
    [
        ("value_count", {}, 3, [(0, 1, 2, 3, 4)]),
        ("value_sum", {}, 10, [(0, 1, 2, 3, 4)]),
        ("value_avg", {}, 3, [(0, 1, 2, 3, 4)]),
        ("value_median", {}, 3, []),
        ("value_percentile", {"percentile": 100}, 7, [(0, 1, 2, 3, 4)]),
    ],
)
def test_values_are_those_of_the_window_that_are_not_missing(kind, more, value, expected):
    events = [(time, "a", {"n": n}) for time, n in enumerate([1, None, 3, 1, 7])]
    condition = {"gte": value, "field": "n", **more}
    assert found({"type": kind, "rules": ["a"], "timespan": "1m", "condition": condition}, events) == expected


def test_percentiles_are_values_by_nearest_rank():
    assert ref.percentile([1, 3, 2], ref.Fraction(1, 2)) == 2
    assert ref.percentile([4, 0, 1, 2], ref.Fraction(1, 2)) == 1
    assert ref.percentile([4, 0, 1, 2], ref.Fraction(0)) == 0
    assert ref.percentile([4, 0, 1, 2], ref.Fraction(1)) == 4


def test_temporal_rules_occur_in_any_order_and_some_of_them_may_be_enough():
    together = {"type": "temporal", "rules": ["a", "b", "c"], "timespan": "10s"}
    events = [(0, "b", {}), (3, "c", {}), (5, "a", {}), (6, "a", {}), (20, "a", {})]
    assert found(together, events) == [(0, 1, 2)]
    assert found({**together, "condition": {"gte": 2}}, events) == [(0, 1)]
    assert found({**together, "condition": "a and not (b or c)"}, events) == [(4,)]


def test_a_range_is_entered_from_below_and_left_above():
    count = {"type": "event_count", "rules": ["a"], "timespan": "10s", "condition": {"gt": 1, "lte": 2}}
    assert found(count, at(0, 1, 2, 3, 13)) == [(0, 1), (3, 4)]


def test_ordered_rules_use_up_the_latest_chain():
    after = {"type": "temporal_ordered", "rules": ["a", "b"], "timespan": "10s"}
    events = [(0, "a", {}), (1, "a", {}), (2, "b", {}), (3, "b", {}), (4, "ab", {}), (5, "b", {}), (20, "b", {})]
    assert found(after, events) == [(1, 2), (4, 5)]


def test_aliases_say_which_field_of_each_rule_tells_the_group():
    alias = {"who": {"a": "user", "b": "target"}}
    together = {"type": "temporal", "rules": ["a", "b"], "timespan": "1m", "group-by": ["who"], "aliases": alias}
    events = [(0, "a", {"user": "x", "target": "y"}), (1, "b", {"user": "x", "target": "y"}), (2, "b", {"target": "x"})]
    assert found(together, events) == [(2,)]


def test_a_correlation_on_another_has_a_group_of_its_own():
    inner = {"type": "event_count", "rules": ["a"], "timespan": "1m", "group-by": ["host"], "condition": {"gte": 2}}
    outer = {"type": "temporal_ordered", "rules": ["many", "b"], "timespan": "1m", "group-by": ["user"]}
    events = [
        (0, "a", {"host": 1, "user": "x"}),
        (1, "a", {"host": 1, "user": "y"}),
        (2, "b", {"host": 2, "user": "y"}),
    ]
    assert found(outer, events, ("many", inner)) == [(1, 2)]


def test_rules_that_a_correlation_takes_for_itself_are_no_queries():
    documents = [*DETECTIONS, {"title": "x", "correlation": {"rules": ["a"], "generate": True}}]
    assert ref.generated(documents) == ["a", "b", "c", "x"]
    documents.append({"title": "y", "correlation": {"condition": "a and not (b)", "type": "temporal"}})
    assert ref.generated(documents) == ["c", "x", "y"]
