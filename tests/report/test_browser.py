"""Report pages in a real browser: they draw, zoom, filter and show rows, and write nothing to the console."""

import numpy as np
import pyarrow as pa
import pytest
from report.pages import HOSTILE, TRADES

import cer_gpu
from cer_gpu.report import counted, listed_matches, write_report

INKED = """
const canvas = document.getElementById(arguments[0]), copy = document.createElement("canvas");
[copy.width, copy.height] = [canvas.width, canvas.height];
const pen = copy.getContext("2d", {willReadFrequently: true});
pen.drawImage(canvas, 0, 0);
const pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data;
const colours = new Set();
for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 150) colours.add(pixels.slice(i, i + 3).join());
return [...colours];
"""
"""The colours on a canvas."""
BOX = """
const box = document.getElementById(arguments[0]).getBoundingClientRect();
return [box.x, box.y, box.width, box.height];
"""
LEFT = 44  # of a chart, for the numbers beside it
LIGHT_BAR, DARK_BAR, LIGHT_MARK = "47,111,219", "110,162,255", "217,72,15"


@pytest.fixture
def page(tmp_path):
    """Write a report, and return its path."""

    def make(text, events, *, time_column=None, **options):
        write_report(cer_gpu.compile(text, time_column=time_column), events, tmp_path / "report.html", **options)
        return tmp_path / "report.html"

    return make


def rows(browser):
    return browser.table("#rows")


def facts(browser):
    return dict(
        browser.run("return [...document.querySelectorAll('#facts div')].map((fact) => fact.innerText.split('\\n'))")
    )


def test_a_page_opens_draws_and_shows_rows(browse, page):
    browser = browse(page("SELECT * FROM S WHERE SELL AS s ; BUY AS b PARTITION BY [name]", TRADES, time_column="ts"))
    assert facts(browser) == {"matches": "3", "events read": "6", "names with a match": "2"}
    assert browser.text("#view") == "3 of 3 matches in view, from 1970-01-01 00:00:00 to 1970-01-01 00:02:30"
    for canvas in ("timeline", "over", "lengths"):
        assert LIGHT_BAR in browser.run(INKED, canvas), canvas
    assert LIGHT_MARK in browser.run(INKED, "timeline")
    assert (
        browser.text("#lengths-text") == "shortest 0, median 20 s, nine in ten at most 2 min 30 s, longest 2 min 30 s"
    )
    head, *lines = rows(browser)
    assert head == ["position", "variable", *TRADES.column_names]
    assert lines[0][:5] == ["0", "s", "SELL", "MSFT", "101.0"]
    assert lines[1][:5] == ["1", "b", "BUY", "MSFT", "99.5"]
    browser.press("#next")
    assert browser.text("#chosen-title") == "Match 2 of 3"
    assert [line[0] for line in rows(browser)[1:]] == ["2", "3"]
    assert rows(browser)[1][5] == "NULL"


def test_a_click_picks_a_complex_event(browse, page):
    events = pa.table({"type": ["A", "A"] + ["C"] * 96 + ["A", "A"], "n": range(100)})
    browser = browse(page("SELECT * FROM S WHERE A : A", events))
    x, y, width, height = browser.run(BOX, "timeline")
    assert browser.text("#chosen-title") == "Match 1 of 2"
    wide = width - LEFT
    left, right = x + LEFT + 0.015 * wide, x + width - 0.015 * wide
    bottom = y + height - 30
    browser.click(right, bottom)
    assert browser.text("#chosen-title") == "Match 2 of 2"
    assert [line[0] for line in rows(browser)[1:]] == ["98", "99"]
    browser.click(left, bottom)
    assert browser.text("#chosen-title") == "Match 1 of 2"
    browser.act({"type": "pointerMove", "duration": 0, "x": int(right), "y": int(bottom)})
    assert browser.text("#tip") == "98 to 99\n1 position, 2 events"


def test_keys_and_drags_zoom_and_move_the_view(browse, page):
    events = pa.table({"type": ["A"] * 1000})
    browser = browse(page("SELECT * FROM S WHERE A", events))
    everything = browser.text("#view")
    assert everything == "1,000 of 1,000 matches in view, from 0 to 999"
    for _ in range(5):
        browser.key("+", "#timeline")
    inside = browser.text("#view")
    n_in_view = int(inside.split()[0])
    assert 70 < n_in_view < 90
    assert "from 4" in inside
    browser.key("ArrowRight", "#timeline")
    assert browser.text("#view") != inside
    x, y, width, _ = browser.run(BOX, "timeline")
    before = int(browser.text("#view").split()[-3])
    browser.drag(x + 0.5 * width, y + 50, x + 0.25 * width, y + 50)
    assert int(browser.text("#view").split()[-3]) - before == pytest.approx(0.25 * n_in_view, abs=3)
    browser.key("0", "#timeline")
    assert browser.text("#view") == everything
    for _ in range(60):
        browser.key("+", "#timeline")
    assert int(browser.text("#view").split()[0]) in {2, 3}
    browser.run("scrollTo(0, 400)")
    x, y, width, _ = browser.run(BOX, "over")
    left, wide = x + LEFT, width - LEFT
    browser.drag(left + 0.25 * wide, y + 30, left + 0.5 * wide, y + 30)
    assert int(browser.text("#view").split()[0]) == pytest.approx(255, abs=5)


def test_the_search_selects_by_keys_values_positions_and_times(browse, page):
    events = pa.table(
        {
            "type": ["A"] * 60,
            "k": ["one", "two", "three"] * 10 + ["One"] * 30,
            "n": [f"v{i}" for i in range(60)],
            "t": pa.array([i * 3_600_000 for i in range(60)], pa.timestamp("ms")),
        }
    )
    browser = browse(page("SELECT * FROM S WHERE A PARTITION BY [k]", events, time_column="t"))
    found = []
    for text in ["t", '"one"', "two 13:00", "v59", "41", '"1970-01-02 03:00"', "nothing like it", ""]:
        browser.fill("#search", text)
        found.append((browser.text("#n-found"), len(browser.table("#matches")) > 1))
    of = "of 60 matches"
    # every row has a time of day and a type, so that "t" is in keys alone; 41 is a position
    assert [told for told, _ in found] == [f"{n} {of}" for n in (20, 40, 1, 1, 1, 1, 0)] + [""]
    assert [is_listed for _, is_listed in found] == [True] * 6 + [False, True]
    assert browser.text("#view").startswith("60 of 60 matches in view")


def test_a_partition_is_shown_alone(browse, page):
    events = pa.table({"type": ["A"] * 60, "k": ["one", "two", "three"] * 10 + ["One"] * 30, "n": range(60)})
    browser = browse(page("SELECT * FROM S WHERE A PARTITION BY [k]", events))
    assert browser.text("#partitions").split() == ["One", "30", "one", "10", "three", "10", "two", "10"]
    browser.press("#partitions li:nth-child(4) button")
    assert browser.text("#view").startswith("10 of 10 matches of this search in view")
    assert (browser.text("#only"), browser.text("#n-found")) == ("k: two \u00d7", "10 of 60 matches")
    browser.press("#next")
    assert [line[3:5] for line in rows(browser)[1:]] == [["two", "1"]]
    browser.press("#only")
    assert browser.text("#view").startswith("60 of 60 matches in view")


LISTED = pa.table(
    {
        "type": ["A", "B", "C", "A", "B", "B", "A", "B"],
        "k": ["x10", "x10", "x10", "x9", "x9", "x10", "y", "y"],
        "n": [5, None, 12345, 70000, 1, 20000, 3, 2],
    }
)
LISTED_QUERY = "SELECT b.n - a.n AS gain FROM S WHERE A AS a ; B AS b PARTITION BY [k]"


def numbers(browser):
    return [row[0] for row in browser.table("#matches tbody")]


def test_the_list_is_sorted_by_any_column(browse, page):
    browser = browse(page(LISTED_QUERY, LISTED))
    head, *lines = browser.table("#matches")
    assert head == ["#", "start", "end", "length", "events", "k", "gain"]
    assert lines == [
        ["1", "0", "1", "1 position", "2", "x10", "NULL"],
        ["2", "3", "4", "1 position", "2", "x9", "-69,999"],
        ["3", "0", "5", "5 positions", "2", "x10", "19,995"],
        ["4", "6", "7", "1 position", "2", "y", "-1"],
    ]
    orders = []
    for column in (7, 7, 6, 4, 1):
        browser.press(f"#matches th:nth-child({column}) button")
        orders.append("".join(numbers(browser)))
    assert orders == ["2431", "3421", "2134", "1243", "1234"]  # NULL last, 9 before 10, equals in their order
    assert browser.run("return document.querySelector('#matches th').ariaSort") == "ascending"
    assert browser.run("return document.querySelector('#matches td:last-child').className") == "number null"


def test_keys_go_through_the_list_and_close_the_rows(browse, page):
    browser = browse(page(LISTED_QUERY, LISTED))
    browser.press("#matches th:nth-child(7) button")  # 2, 4, 3, 1
    browser.press("#matches tbody tr:not(.space)")
    shown = [browser.text("#chosen-title")]
    for key, place in [
        ("ArrowDown", "#matches"),
        ("ArrowDown", "#timeline"),
        ("ArrowRight", "#close"),
        ("ArrowDown", "#matches"),
        ("ArrowUp", "#matches"),
    ]:
        browser.key(key, place)
        shown.append(browser.text("#chosen-title"))
    assert [title.split()[1] for title in shown] == ["2", "4", "3", "1", "1", "3"]
    active = "return document.querySelector('#' + document.getElementById('matches').ariaActiveDescendantElement.id)"
    assert browser.run(f"{active}.ariaSelected") == "true"
    browser.key("Escape")
    assert not browser.run("return document.getElementById('chosen').checkVisibility()")
    assert browser.run("return document.querySelectorAll('#matches [aria-selected=true]').length") == 0


def test_the_rows_are_in_sight_where_a_complex_event_is_clicked(browse, page):
    events = pa.table({"type": ["A", "B"] * 300, "n": range(600)})
    path = page("SELECT * FROM S WHERE A : B", events)
    inside = """
        const box = document.getElementById("rows").getBoundingClientRect();
        return box.top > 0 && box.bottom <= innerHeight;
    """
    for width in (1480, 1100, 500):
        browser = browse(path, width=width, height=800)
        for place in ("#timeline", "#matches-scroll"):
            browser.run("document.querySelector(arguments[0]).scrollIntoView({block: 'start'})", place)
            browser.run("scrollBy(0, -60)")
            x, y, _, height = browser.run(BOX, place[1:])
            browser.click(x + 70, y + (100 if place == "#matches-scroll" else height - 34))
            assert browser.run(inside), (width, place)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), width


def test_the_rows_between_are_shown_on_demand(browse, page):
    browser = browse(page(LISTED_QUERY, LISTED), "#match=3")
    assert [line[:1] for line in rows(browser)[1:]] == [["0"], ["5"]]
    assert browser.text("#between") == "Show 2 rows between"
    browser.press("#between")
    assert [line[0] for line in rows(browser)[1:]] == ["0", "1", "2", "5"]
    dim = "return [...document.querySelectorAll('#rows tr.between')].map((row) => row.cells[0].innerText)"
    assert browser.run(dim) == ["1", "2"]
    assert "rows between that are not part of the match, of the same k." in browser.text("#chosen-note")
    assert rows(browser)[3][-1] == "12,345"
    browser.press("#previous")
    assert not browser.run("return document.getElementById('between').checkVisibility()")


def test_an_address_opens_one_complex_event(browse, page, tmp_path):
    path = page("SELECT * FROM S WHERE A", pa.table({"type": ["A"] * 300, "n": range(300)}))
    browser = browse(path, "#match=250", width=900)
    assert (browser.text("#chosen-title"), rows(browser)[1][0]) == ("Match 250 of 300", "249")
    assert "250" in numbers(browser)
    browser.press("#next")
    browser.run("setTimeout(() => { document.title = 'later'; }, 300)")
    browser.until("return document.title === 'later'")
    assert browser.address().endswith("report.html#match=251")
    browser.run("navigator.clipboard.writeText = async (text) => { document.title = text; }")
    browser.press("#link")
    browser.until("return document.title.endsWith('report.html#match=251')")
    browser.run("location.hash = '#match=7'")
    assert browser.text("#chosen-title") == "Match 7 of 300"
    browser.run("location.hash = '#match=none'")
    assert browser.text("#chosen-title") == "Match 7 of 300"


def test_the_list_is_saved_as_it_is_shown(browse, page, tmp_path):
    events = LISTED.set_column(1, "k", pa.array(["x,10"] * 3 + ["x9"] * 2 + ["x,10", 'y"', 'y"']))
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    browser = browse(page(LISTED_QUERY, events), downloads=downloads)
    browser.fill("#search", "x")
    browser.press("#matches th:nth-child(7) button")
    browser.press("#save-list")
    browser.press("#save-positions")
    files = [downloads / "matches.csv", downloads / "matches_positions.csv"]
    browser.until("return true", also=lambda: all(file.exists() for file in files))
    assert files[0].read_text() == (
        "number,start,end,length,events,k,gain,positions\n"
        "2,3,4,1,2,x9,-69999,3 4\n"
        '3,0,5,5,2,"x,10",19995,0 5\n'
        '1,0,1,1,2,"x,10",,0 1\n'
    )
    assert files[1].read_text() == ("number,position,variable\n2,3,a\n2,4,b\n3,0,a\n3,5,b\n1,0,a\n1,1,b\n")


def test_a_long_list_makes_only_the_rows_in_sight(browse, page):
    events = pa.table({"type": ["A"] * 50_000, "n": np.arange(50_000) % 977})
    browser = browse(page("SELECT * FROM S WHERE A AS a", events))
    assert len(numbers(browser)) < 60
    browser.run("document.getElementById('matches-scroll').scrollTop = 29 * 30000")
    assert "30001" in [number.replace(",", "") for number in numbers(browser)]
    browser.key("End", "#matches")
    assert numbers(browser)[-1] == "50,000"
    took = browser.run("""
        const begin = performance.now();
        document.querySelectorAll("#matches th button")[1].click();
        document.querySelectorAll("#matches th button")[1].click();
        return performance.now() - begin;
    """)
    assert numbers(browser)[0] == "50,000"
    assert took < 2000  # allows for a busy machine; about 60 on an idle one


def test_a_long_query_wraps_and_is_cut(browse, page):
    text = "SELECT * FROM S WHERE A" + "".join(f"\n    -- line {i}" for i in range(40)) + "\n-- " + "long " * 200
    browser = browse(page(text, pa.table({"type": ["A"]})), width=900)
    tall = "return document.getElementById('query').clientHeight"
    short = browser.run(tall)
    assert browser.text("#query + button").startswith("Show all ")
    browser.press("#query + button")
    assert browser.run(tall) > 2.5 * short
    assert browser.run("const query = document.getElementById('query'); return query.scrollWidth <= query.clientWidth")


def test_hostile_text_is_shown_and_not_executed(browse, page):
    events = TRADES.append_column(HOSTILE, TRADES["note"]).append_column("k", pa.array([HOSTILE] * 6))
    query = f"SELECT * FROM S /* {HOSTILE} */ WHERE SELL AS s ; BUY PARTITION BY [k]"
    browser = browse(page(query, events, time_column="ts", title=HOSTILE))
    assert browser.text("h1") == HOSTILE
    assert browser.text("#query") == query
    assert browser.text("#partitions span") == HOSTILE
    assert browser.text("#groups td button") == HOSTILE
    browser.press("#groups td button")
    assert browser.text("#only-group") == f"k: {HOSTILE} \u00d7"
    assert HOSTILE in rows(browser)[0]
    assert HOSTILE in rows(browser)[1]
    assert browser.run("return document.scripts.length") == 2
    blocked = "const made = document.createElement('script'); made.text = 'window.ran = 1'; document.body.append(made);"
    assert browser.run(f"{blocked} return window.ran ?? null") is None
    assert any("Content Security Policy" in message for message in browser.console())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_follow_the_dark_mode_of_the_browser(browse, page, dark):
    browser = browse(page("SELECT * FROM S WHERE SELL ; BUY", TRADES), dark=dark)
    assert (DARK_BAR if dark else LIGHT_BAR) in browser.run(INKED, "over")
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(17, 20, 25)" if dark else "rgb(252, 252, 253)")


def test_a_hundred_thousand_complex_events_are_drawn_within_100_ms(browse, page):
    rng = np.random.default_rng(7)
    events = pa.table({"type": rng.choice(["A", "B", "C"], 120_000), "k": rng.integers(0, 50, 120_000)})
    browser = browse(page("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 10 EVENTS", events))
    assert 100_000 < int(facts(browser)["matches"].replace(",", "")) < 200_000
    assert browser.text("#view").endswith(" in view, from 7 to 119,997")
    assert LIGHT_BAR in browser.run(INKED, "timeline")
    milliseconds = browser.frames([*"+" * 8, *"-" * 8, "ArrowLeft", "ArrowRight"])
    assert np.median(milliseconds) < 100  # allows for a busy machine; about 16 on an idle one


def test_the_page_names_its_limits(browse, page, monkeypatch):
    monkeypatch.setattr(listed_matches, "MAX_DRAWN", 100)
    monkeypatch.setattr(listed_matches, "MAX_REFERENCES", 90)
    events = pa.table({"type": ["A"] * 1000, "k": [f"k{i}" for i in range(1000)], "s": ["z" * 300] * 1000})
    browser = browse(page("SELECT * FROM S WHERE A PARTITION BY [k]", events))
    said = browser.text("#limits")
    for part in [
        "the rows of one match in 32",
        "120 characters",
        "63 of 1,000 ks",
    ]:
        assert part in said
    assert "it has a sample, 63 of 1,000, one in 16" in browser.text("#some")
    browser.press("#next")
    assert browser.text("#chosen-title") == "Match 17 of 1,000"
    assert browser.text("#chosen-note") == "Its rows are not on this page."
    browser.press("#next")
    assert rows(browser)[1][:2] == ["32", "A"]
    browser.run("location.hash = '#match=50'")
    assert browser.text("#chosen-note").startswith("Match 50 is not on this page; this is one near it.")


@pytest.mark.parametrize(
    ("times", "view"),
    [
        (pa.array([1, 2, 90_061_000], pa.duration("ms")), "from 1 ms to 1 d 1 h"),
        (
            pa.array([2**60, 2**60 + 1, 2**60 + 5], pa.int64()),
            "from 1,152,921,504,606,846,976 to 1,152,921,504,606,846,981",
        ),
        (pa.array([0, 10, 20_000], pa.date32()), "from 1970-01-01 to 2024-10-04"),
        (
            pa.array([0, 1, 2_000_001], pa.timestamp("ns", "UTC")),
            "from 1970-01-01 00:00:00.000000000Z to 1970-01-01 00:00:00.002000001Z",
        ),
        (pa.array([5, 5, 5], pa.timestamp("s")), "from 1970-01-01 00:00:05 to 1970-01-01 00:00:05"),
        (pa.array([-(10**12), 0, 10**12], pa.timestamp("s")), "from "),
        (pa.array([10**15, 10**15 + 1, 10**15 + 9], pa.timestamp("s")), "from 1,000,000,000,000,000,000 ms to "),
    ],
    ids=lambda v: str(v.type) if isinstance(v, pa.Array) else "",
)
def test_every_kind_of_axis_is_drawn(browse, page, times, view):
    events = pa.table({"type": ["A", "A", "A"], "t": times})
    browser = browse(page("SELECT * FROM S WHERE A ; A", events, time_column="t"))
    assert view in browser.text("#view")
    assert browser.run(INKED, "timeline")
    browser.key("+", "#timeline")


@pytest.mark.parametrize(
    ("times", "said", "head"),
    [
        (pa.array([0, 1], pa.timestamp("s")), "Times are as in the column t, which has no time zone.", "start"),
        (pa.array([0, 1], pa.timestamp("s", "UTC")), "Times are in UTC.", "start (UTC)"),
        (
            pa.array([0, 1], pa.timestamp("s", "Asia/Tokyo")),
            "Times are in Asia/Tokyo, the zone of the column t.",
            "start (Asia/Tokyo)",
        ),
        (pa.array([0, 1], pa.date32()), "", "start"),
    ],
    ids=["none", "UTC", "Tokyo", "dates"],
)
def test_the_page_says_which_times_it_shows(browse, page, times, said, head):
    browser = browse(page("SELECT * FROM S WHERE A ; A", pa.table({"type": ["A", "A"], "t": times}), time_column="t"))
    assert (browser.text("#times"), browser.table("#matches")[0][1]) == (said, head)


def test_charts_have_round_steps_and_counts(browse, page, tmp_path):
    path = page("SELECT * FROM S WHERE A", pa.table({"type": ["A"]}))
    browser = browse(path)
    ticks = "return countTicks(arguments[0], arguments[1])"
    found = [browser.run(ticks, *asked) for asked in [(1, 4), (37, 4), (97, 5), (1000, 5)]]
    assert found == [[0, 1], [0, 10, 20, 30], [0, 20, 40, 60, 80], [0, 200, 400, 600, 800, 1000]]
    lengths = "return new Axis({kind: 'duration', unit: '', origin: '0'}).ticks(0, arguments[0] * 3600000, 5)"
    assert [text for _, text in browser.run(lengths, 24)] == ["0", "6 h", "12 h", "18 h", "1 d"]
    moments = "return new Axis({kind: 'moment', unit: '', origin: '0'}).ticks(0, arguments[0] * 1000, 5)"
    assert [text for _, text in browser.run(moments, 7200)] == ["1970-01-01 00:00", "00:30", "01:00", "01:30", "02:00"]
    assert browser.run("return ['1234', '12345', '-1234567.5', '0.30000000000000004', 'x'].map(groupedText)") == [
        "1234",
        "12,345",
        "-1,234,567.5",
        "0.3",
        "x",
    ]


def test_a_page_without_complex_events_says_so(browse, page):
    browser = browse(page("SELECT * FROM S WHERE BUY FILTER BUY[price > 1000]", TRADES))
    assert browser.text("#found") == "The query found no matches."
    assert not browser.run("return document.getElementById('chosen')")


def test_a_table_opens_the_page_of_each_query(browse, tmp_path):
    rules = {
        "none": "SELECT * FROM S WHERE C",
        "a/b c": "SELECT * FROM S WHERE SELL",
        HOSTILE: "SELECT * FROM S WHERE BUY : BUY",
    }
    write_report(cer_gpu.compile_all(rules), TRADES, tmp_path / "report.html")
    browser = browse(tmp_path / "report.html")
    assert facts(browser) == {"queries": "3", "found something": "2", "events read": "6"}
    cells = (
        "return [...document.querySelectorAll('#list tbody tr')].map((row) => [...row.cells].map((c) => c.innerText))"
    )
    assert [row[:2] for row in browser.run(cells)] == [["none", "0"], ["a/b c", "3"], [HOSTILE, "1"]]
    assert browser.text("#name") == "a/b c"  # the first that found something
    assert browser.text("#chosen-title") == "Match 1 of 3"
    for at, title in [(2, "Match 1 of 1"), (1, "Match 1 of 3")]:
        browser.run("document.querySelectorAll('#list button')[arguments[0]].click()", at)
        assert browser.text("#name") == list(rules)[at]
        assert browser.text("#chosen-title") == title
        assert LIGHT_BAR in browser.run(INKED, "over")
    browser.run("location.hash = new URLSearchParams({query: 'a/b c', match: 2})")
    assert (browser.text("#name"), browser.text("#chosen-title")) == ("a/b c", "Match 2 of 3")
    browser.run("document.querySelectorAll('#list button')[0].click()")
    assert browser.text("#found") == "The query found no matches."
    assert browser.run("return document.querySelectorAll('#list [aria-current]').length") == 1


def test_the_page_says_that_not_all_are_listed(browse, page, monkeypatch):
    monkeypatch.setattr(counted, "MAX_LISTED", 100)
    browser = browse(page("SELECT * FROM S WHERE A ; A", pa.table({"type": ["A"] * 40})))
    assert facts(browser)["matches"] == "780"
    said = browser.text("#some")
    assert "of those that end at the same event, at most 2 are listed, 77 in all." in said
    assert browser.text("#chosen-title") == "Match 1 of 77 listed"
    assert LIGHT_BAR in browser.run(INKED, "over")
