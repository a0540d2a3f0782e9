"""Report pages for somebody who did not write the query, in a real browser: words, times, filters, counts by group."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.report import write_report


@pytest.fixture
def page(tmp_path):
    """Write a report, and return its path."""

    def make(text, events, *, time_column=None, time_unit=None, **options):
        query = cer_gpu.compile(text, time_column=time_column, time_unit=time_unit)
        write_report(query, events, tmp_path / "report.html", **options)
        return tmp_path / "report.html"

    return make


def facts(browser):
    return dict(
        browser.run("return [...document.querySelectorAll('#facts div')].map((fact) => fact.innerText.split('\\n'))")
    )


def test_a_page_of_sorted_events_begins_with_the_timeline_and_sorts_by_measures(browse, page):
    n = 1000
    events = pa.table(
        {
            "type": ["A", "B"] * n,
            "n": range(2 * n),
            "t": pa.array([*range(n, 2 * n), *range(n)], pa.timestamp("s")),
            "user": ["x", "x", "y", "y"] * (n // 2),
        }
    )
    text = "SELECT b.n - a.n AS gain, a.n AS one FROM S WHERE A AS a ; B AS b PARTITION BY [user] WITHIN 4 EVENTS"
    browser = browse(page(text, events, time_column="t", sort=True), width=900)
    assert browser.run("return document.getElementById('page').scrollHeight") < 2500
    assert facts(browser)["users with a match"] == "2"
    browser.press("#matches th:last-child button")
    head, *lines = browser.table("#matches")
    assert head[-3:] == ["user", "gain", "one"]
    assert lines[0][-1] == "0"
    browser.press("#matches tbody tr:not(.space)")
    assert "0 to 1" in browser.text("#chosen-facts")  # positions in the input, as the measures say
    assert [line[0] for line in browser.table("#rows")[1:]] == ["0", "1"]
    assert browser.text("#most-title") == "Users with the most matches"
    assert browser.text("#over-title") == "Matches over time"


def test_the_noun_for_keys_is_the_name_of_the_column(browse, page):
    browser = browse(page("SELECT * FROM S WHERE A", pa.table({"type": ["A"]})))
    asked = [[["user"], 1], [["user"], 2], [["address"], 2], [["city"], 2], [["a", "b"], 1], [["a", "b", "c"], 3]]
    found = [browser.run("return keyNoun(arguments[0], arguments[1])", *each) for each in asked]
    expected = ["user", "users", "addresses", "cities", "pair of a and b", "combinations of a, b and c"]
    assert found == expected
