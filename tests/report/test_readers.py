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


def test_times_are_in_their_own_zone_and_in_utc_on_request(browse, page):
    hours = pa.array([0, 3_600, 7_200, 90_000], pa.timestamp("s", "Asia/Tokyo"))
    events = pa.table({"type": ["A", "B", "A", "B"], "t": hours, "u": hours.cast(pa.timestamp("ms", "+05:30"))})
    browser = browse(page("SELECT a.t AS at FROM S WHERE A AS a : B", events, time_column="t"), "#match=1")
    assert browser.table("#matches")[0][1:3] == ["start (Asia/Tokyo)", "end (Asia/Tokyo)"]
    assert browser.table("#matches")[1][1:3] == ["1970-01-01 09:00:00+09:00", "1970-01-01 10:00:00+09:00"]
    assert browser.table("#matches")[1][-1] == "1970-01-01 09:00:00+09:00"
    assert browser.table("#rows")[1][-2:] == ["1970-01-01 09:00:00+09:00", "1970-01-01 05:30:00+05:30"]
    browser.fill("#search", "09:00")
    assert browser.text("#n-found") == "1 of 2 matches"
    browser.fill("#search", "")
    browser.press("#zone")
    assert browser.text("#times") == "Times are in UTC (the zone of the column t is Asia/Tokyo)."
    assert browser.table("#matches")[0][1] == "start (UTC)"
    assert browser.table("#matches")[1][1] == "1970-01-01 00:00:00Z"
    assert browser.table("#rows")[1][-2:] == ["1970-01-01 00:00:00Z"] * 2
    assert browser.text("#view").endswith("from 1970-01-01 00:00:00Z to 1970-01-02 01:00:00Z")
    browser.press("#zone")
    assert browser.text("#times") == "Times are in Asia/Tokyo, the zone of the column t."


def test_no_switch_where_times_have_no_zone_of_their_own(browse, page):
    events = pa.table({"type": ["A"], "t": pa.array([0], pa.timestamp("s", "UTC"))})
    for column in (None, "t"):
        browser = browse(page("SELECT * FROM S WHERE A", events, time_column=column))
        assert not browser.run("return document.getElementById('zone').checkVisibility()")


def test_zones_change_their_clocks_and_an_unknown_one_is_utc(browse, page):
    browser = browse(page("SELECT * FROM S WHERE A", pa.table({"type": ["A"]})))
    text = "return inZone(arguments[0], Zone.of(arguments[1]))"
    found = [
        browser.run(text, *asked)
        for asked in [
            ("2026-03-29 00:59:59.5Z", "Europe/Paris"),
            ("2026-03-29 01:00:00Z", "Europe/Paris"),
            ("2026-07-01 12:00:00Z", "-03:30"),
            ("2026-07-01 12:00:00Z", "Mars/Olympus"),
        ]
    ]
    assert found == [
        "2026-03-29 01:59:59.5+01:00",
        "2026-03-29 03:00:00+02:00",
        "2026-07-01 08:30:00-03:30",
        "2026-07-01 12:00:00Z",
    ]
    axis = "{kind: 'moment', unit: 'Z', origin: '1774656000000', zone: 'Europe/Paris'}"  # 2026-03-28 00:00 UTC
    ticks = browser.run(f"return new Axis({axis}).ticks(0, 3 * 86400000, 4)")
    assert [tick for _, tick in ticks] == ["2026-03-29", "2026-03-30", "2026-03-31"]
    assert ticks[1][0] - ticks[0][0] == 23 * 3_600_000


def test_durations_are_shown_and_sorted_as_durations(browse, page):
    seconds = [0, 45, 100, 100 + 26 * 3600, 10**6, 10**6 + 7325]
    events = pa.table({"type": ["A", "B"] * 3, "t": pa.array(seconds, pa.timestamp("s"))})
    browser = browse(page("SELECT b.t - a.t AS took FROM S WHERE A AS a : B AS b", events, time_column="t"))
    browser.press("#matches th:last-child button")
    assert [row[-1] for row in browser.table("#matches tbody")] == ["45 s", "2 h 2 min 5 s", "1 d 2 h"]
    assert browser.run("return ['-1d 0:00:00.001', '0:00:00.000000001', 'x'].map(parsedDuration)") == [
        -86_400_001,
        0.000001,
        None,
    ]


def test_lengths_in_the_unit_of_an_integer_time_column_are_durations(browse, page):
    events = pa.table({"type": ["A", "B"], "t": [5_000_000, 7_384_000_000]})
    path = page("SELECT * FROM S WHERE A ; B", events, time_column="t", time_unit="us")
    browser = browse(path)
    assert browser.table("#matches")[1][3] == "2 h 2 min"
    assert browser.text("#lengths-text").endswith("longest 2 h 2 min")


BOUGHT = pa.table(
    {
        "type": ["A", "B"] * 6,
        "user": ["x", "x", "x", "x", "y", "y", "y", "y", "y", "y", "z", "z"],
        "shop": ["north", ""] * 2 + ["south", ""] * 4,
        "paid": [0, 10, 0, 20, 0, 5, 0, 7, 0, None, 0, 1],
        "t": pa.array([0, 10, 100, 110, 200, 210, 300, 390, 400, 4000, 5000, 5010], pa.timestamp("s")),
    }
)
BOUGHT_QUERY = "SELECT b.paid - a.paid AS paid FROM S WHERE A AS a : B AS b PARTITION BY [user]"


def listed(browser):
    return "".join(row[0] for row in browser.table("#matches tbody"))


def test_a_click_on_a_bar_of_durations_lists_its_matches_alone(browse, page):
    browser = browse(page(BOUGHT_QUERY, BOUGHT, time_column="t"))
    click = """
        const canvas = document.getElementById("lengths"), box = canvas.getBoundingClientRect();
        const x = box.x + 44 + arguments[0] * (box.width - 44);
        canvas.dispatchEvent(new MouseEvent("click", {clientX: x, clientY: box.y + 20, bubbles: true}));
    """
    assert listed(browser) == "123456"
    browser.run(click, 0.005)
    assert (listed(browser), browser.text("#only-lengths")) == ("12346", "duration: 0 to 2 min \u00d7")
    assert browser.text("#lengths-text").endswith("longest 1 h")  # the chart keeps its other bars
    browser.run(click, 0.5)
    assert listed(browser) == "12346"  # no bar is there
    browser.run(click, 0.005)
    assert listed(browser) == "123456"
    browser.key("ArrowLeft", "#lengths")
    assert listed(browser) == "5"
    browser.key("ArrowLeft", "#lengths")
    assert listed(browser) == "12346"
    browser.press("#partitions button")
    assert (listed(browser), browser.text("#n-found")) == ("34", "2 of 6 matches")
    browser.press("#only-lengths")
    browser.press("#only")
    assert listed(browser) == "123456"


def test_a_measure_is_broken_down_by_a_key_or_a_column(browse, page):
    browser = browse(page(BOUGHT_QUERY, BOUGHT, time_column="t"))
    assert browser.table("#groups") == [
        ["user", "matches", "median paid", "mean", "least", "greatest"],
        ["y", "3", "6", "6", "5", "7"],
        ["x", "2", "15", "15", "10", "20"],
        ["z", "1", "1", "1", "1", "1"],
    ]
    choose = """
        const select = document.getElementById(arguments[0]);
        select.value = [...select.options].findIndex((option) => option.text === arguments[1]);
        select.dispatchEvent(new Event("change"));
    """
    browser.run(choose, "measure", "duration")
    browser.run(choose, "grouping", "shop of the first row")
    assert browser.table("#groups")[1:] == [
        ["south", "4", "50 s", "15 min 28 s", "10 s", "1 h"],
        ["north", "2", "10 s", "10 s", "10 s", "10 s"],
    ]
    browser.press("#groups tbody tr:nth-child(2) button")
    assert (listed(browser), browser.text("#only-group")) == ("12", "shop of the first row: north \u00d7")
    assert len(browser.table("#groups")) == 3
    browser.press("#groups th button")
    assert [row[0] for row in browser.table("#groups")[1:]] == ["north", "south"]
    browser.press("#only-group")
    assert listed(browser) == "123456"


def test_groups_are_hidden_where_there_is_nothing_to_group_by(browse, page):
    browser = browse(page("SELECT * FROM S WHERE A", pa.table({"type": ["A", "A"]})))
    assert not browser.run("return document.getElementById('groups-of').checkVisibility()")


def test_the_query_is_folded_on_a_phone(browse, page):
    text = BOUGHT_QUERY + "".join(f"\n-- line {i}" for i in range(40))
    path = page(text, BOUGHT, time_column="t")
    visible = "return document.getElementById('query').checkVisibility()"
    wide = browse(path)
    assert (wide.run(visible), wide.text("#details summary")) == (True, "Query")
    narrow = browse(path, width=500)
    assert (narrow.run(visible), narrow.text("#details summary")) == (False, "Details")
    narrow.press("#details summary")
    assert narrow.run(visible)
    narrow.until("return !document.querySelector('#query + button').hidden")
    assert narrow.run("return document.documentElement.scrollWidth <= innerWidth")


LOADED = """
const [page] = performance.getEntriesByType("navigation");
return page.loadEventEnd - page.responseEnd;
"""


def test_the_time_to_draw_matches_grows_no_faster_than_their_number(browse, page):
    def milliseconds(n):
        times = pa.array(range(0, n * 1000, 1000), pa.timestamp("ms", "Europe/Paris"))
        events = pa.table({"type": ["A"] * n, "user": [f"u{i % 500}" for i in range(n)], "t": times})
        text = "SELECT LAST(a).t - FIRST(a).t AS took FROM S WHERE A AS a PARTITION BY [user]"
        browser = browse(page(text, events, time_column="t"))
        assert facts(browser)["matches"] == f"{n:,}"
        assert browser.text("#some") == ""
        return browser.run(LOADED)

    assert milliseconds(10_000) < 10 * milliseconds(1_000)


@pytest.mark.long("lists a million matches")
def test_a_million_matches_are_sampled_and_the_page_says_so(browse, page):
    n = 1_000_000
    browser = browse(page("SELECT * FROM S WHERE A", pa.table({"type": ["A"] * n, "n": range(n)})))
    assert facts(browser)["matches"] == "1,000,000"
    assert browser.text("#some").startswith(
        "There are too many matches for one page: it has a sample, 125,000 of 1,000,000, one in 8, spread evenly,"
    )
    assert browser.run(LOADED) < 4000  # allows for a busy machine; about 700 on an idle one
