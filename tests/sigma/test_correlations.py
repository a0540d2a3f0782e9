"""Correlations of Sigma as texts: groups, units, and what is refused."""

import pytest

pytest.importorskip("sigma", reason="pySigma is an extra")

import cer_gpu
import cer_gpu.sigma

RULES = r"""
title: A
name: a
logsource: {product: windows, category: process_creation}
detection: {s: {Image: x}, condition: s}
---
title: B
name: b
logsource: {product: windows, category: network_connection}
detection: {s: {Image: y}, condition: s}
---
title: Order
name: order
correlation: {type: temporal_ordered, rules: [a, b], group-by: [Image], timespan: 1m}
---
"""


def loaded(correlation, **options):
    return cer_gpu.sigma.load(f"{RULES}title: C\nname: c\ncorrelation: {correlation}", **options)


def text(correlation, **options):
    rules = loaded(correlation, **options)
    assert "C" in rules, rules.errors
    cer_gpu.compile(rules["C"], time_column="ts")
    return rules["C"].partition("\n")[2]


def test_a_count_is_over_the_past_of_its_group():
    found = text("{type: event_count, rules: [a], group-by: [User], timespan: 90m, condition: {gt: 9}}")
    assert found == (
        "SELECT MAX * FROM events WHERE (* AS counted)* ; * AS event FILTER counted[Image GLOB 'x' NOCASE] AND "
        "event[RISES(COUNT(* FILTER Image GLOB 'x' NOCASE) OVER 90 MINUTES > 9, Image GLOB 'x' NOCASE)] "
        "PARTITION BY [User] WITHIN 90 MINUTES"
    )


@pytest.mark.parametrize(
    ("timespan", "length"),
    [("30s", "30 SECONDS"), ("120m", "2 HOURS"), ("1d", "1 DAY"), ("2w", "14 DAYS"), ("1M", "2629746 SECONDS")],
)
def test_time_spans_are_lengths_in_their_largest_unit(timespan, length):
    found = text(f"{{type: event_count, rules: [a], timespan: {timespan}, condition: {{gte: 2}}}}")
    assert f" OVER {length} >= 2" in found


def test_aliases_of_unlike_columns_are_keys_of_the_events_of_each_rule():
    alias = "{who: {a: User, b: SourceHostname}}"
    found = text(f"{{type: temporal, rules: [a, b], group-by: [who], timespan: 1m, aliases: {alias}}}")
    keys = "PARTITION BY [User FILTER Image GLOB 'x' NOCASE, SourceHostname FILTER Image GLOB 'y' NOCASE]"
    assert found.count(keys) == 3
    assert found.endswith("]")
    found = text(f"{{type: temporal_ordered, rules: [a, b], group-by: [who], timespan: 1m, aliases: {alias}}}")
    assert found.endswith("AND step_1.User = step_2.SourceHostname WITHIN 1 MINUTE")


def test_a_correlation_below_another_names_its_groups_if_they_are_others():
    inner = "{type: event_count, rules: [a], group-by: [User], timespan: 1m, condition: {gte: 2}}\n---\n"
    outer = "title: D\ncorrelation: {type: temporal_ordered, rules: [c, b], group-by: [%s], timespan: 1h}"
    same = loaded(inner + outer % "User")["D"]
    assert "OVER 1 MINUTE >= 2" in same
    other = loaded(inner + outer % "Computer")["D"]
    assert "OVER 1 MINUTE PARTITION BY [User] >= 2" in other
    assert other.endswith("PARTITION BY [Computer] WITHIN 1 HOUR")


def test_a_field_with_a_column_in_each_log_source_is_that_of_the_events_own():
    count = "{type: event_count, rules: [a], group-by: [ProcessId], timespan: 1m, condition: {gte: 2}}"
    sysmon = "ProcessId FILTER EventID = 1 AND Channel GLOB 'Microsoft-Windows-Sysmon/Operational' NOCASE"
    security = "NewProcessId FILTER EventID = 4688 AND Channel GLOB 'Security' NOCASE"
    assert text(count, pipelines="windows").endswith(f"PARTITION BY [{sysmon}, {security}])]")
    ordered = "{type: temporal_ordered, rules: [a, b], group-by: [ProcessId], timespan: 1m}"
    assert "several columns" in str(dict(loaded(ordered, pipelines="windows").errors)["C"])


def test_a_field_of_several_columns_is_several_keys():
    count = "{type: event_count, rules: [a], group-by: [User], timespan: 1m, condition: {gte: 2}}"
    assert text(count, pipelines="ecs").endswith("PARTITION BY [`user.domain`], [`user.name`] WITHIN 1 MINUTE")


@pytest.mark.parametrize(
    ("correlation", "said"),
    [
        ("{type: temporal, rules: [order, b], timespan: 1m}", "'order' is temporal_ordered"),
        ("{type: temporal_ordered, rules: [a, b], timespan: 1m, condition: {gte: 1}}", "some need not occur"),
        ("{type: temporal_ordered, timespan: 1m, condition: a or b}", "some need not occur"),
        ("{type: value_count, rules: [a], timespan: 1m, condition: {gte: 2, field: [x, y]}}", "several fields"),
        ("{type: value_percentile, rules: [a], timespan: 1m, condition: {gte: 2, field: x}}", "expected a percentile"),
        ("{type: event_count, rules: [none], timespan: 1m, condition: {gte: 2}}", "none"),
    ],
)
def test_what_no_query_says_is_told_by_name(correlation, said):
    rules = loaded(correlation)
    assert "C" not in rules
    assert said in str(dict(rules.errors)["C"])


def test_an_order_by_words_is_the_order_of_the_words():
    found = text("{type: temporal_ordered, timespan: 1m, condition: b and a}")
    assert "step_1[Image GLOB 'y' NOCASE] AND step_2[Image GLOB 'x' NOCASE]" in found


@pytest.mark.parametrize(
    ("condition", "written"),
    [
        ("{gt: 100, lte: 200}", "COUNT(* FILTER {p}) OVER 1 MINUTE > 100 AND COUNT(* FILTER {p}) OVER 1 MINUTE <= 200"),
        ("{lt: 9, gte: 2}", "COUNT(* FILTER {p}) OVER 1 MINUTE < 9 AND COUNT(* FILTER {p}) OVER 1 MINUTE >= 2"),
    ],
)
def test_several_bounds_are_a_range(condition, written):
    found = text(f"{{type: event_count, rules: [a], timespan: 1m, condition: {condition}}}")
    assert f"RISES({written}, ".replace("{p}", "Image GLOB 'x' NOCASE") in found


@pytest.mark.parametrize("condition", ["{gt: 5, lt: 5}", "{gte: 6, lte: 5}", "{eq: 3, gt: 3}", "{gt: 5, lt: many}"])
def test_a_range_without_a_number_is_an_error(condition):
    (error,) = dict(loaded(f"{{type: event_count, rules: [a], timespan: 1m, condition: {condition}}}").errors).values()
    assert "no number is in the range" in str(error) or "'many' is no valid" in str(error)


@pytest.mark.parametrize("kind", ["event_count", "value_count", "temporal_ordered"])
def test_letter_case_of_groups_and_values_may_not_matter(kind):
    field = ", field: Name" if kind == "value_count" else ""
    condition = "" if kind == "temporal_ordered" else f", condition: {{gte: 2{field}}}"
    of = f"{{type: {kind}, rules: [a, b], group-by: [User], timespan: 1m{condition}}}"
    found = text(of, nocase_groups=True)
    assert "PARTITION BY [User NOCASE]" in found
    assert ("COUNT(DISTINCT *.Name NOCASE FILTER" in found) == (kind == "value_count")
    assert "[User]" in text(of)
    alias = "{who: {a: User, b: SourceHostname}}"
    ordered = f"{{type: temporal_ordered, rules: [a, b], group-by: [who], timespan: 1m, aliases: {alias}}}"
    assert "without the case of letters" in str(dict(loaded(ordered, nocase_groups=True).errors)["C"])


def test_the_query_of_a_count_has_no_notes():
    count = "{type: event_count, rules: [a], group-by: [User], timespan: 1m, condition: {gte: 2}}"
    query = cer_gpu.compile(loaded(count)["C"], time_column="ts")
    assert query.notes == ()
