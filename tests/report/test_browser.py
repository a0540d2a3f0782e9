"""Report pages in a real browser: they draw, zoom, filter and show rows, and write nothing to the console."""

import numpy as np
import pyarrow as pa
import pytest
from report.pages import HOSTILE, TRADES

import cer_gpu
from cer_gpu.report import counted as counted_module
from cer_gpu.report import found as found_module
from cer_gpu.report import write_report

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
LIGHT_BAR, DARK_BAR, LIGHT_MARK = "47,111,219", "110,162,255", "217,72,15"


@pytest.fixture
def page(tmp_path):
    """Write a report, and return its path."""

    def make(text, events, *, time_column=None, **options):
        write_report(cer_gpu.compile(text, time_column=time_column), events, tmp_path / "report.html", **options)
        return tmp_path / "report.html"

    return make


def rows(browser):
    return browser.run(
        "return [...document.querySelectorAll('#rows tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )


def facts(browser):
    return dict(
        browser.run("return [...document.querySelectorAll('#facts div')].map((fact) => fact.innerText.split('\\n'))")
    )


def press(browser, key):
    browser.run(
        "document.getElementById('timeline').dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0]}))", key
    )


def fill(browser, text):
    browser.run(
        "const filter = document.getElementById('filter'); filter.value = arguments[0];"
        "filter.dispatchEvent(new Event('input'))",
        text,
    )


def test_a_page_opens_draws_and_shows_rows(browse, page):
    browser = browse(page("SELECT * FROM S WHERE SELL AS s ; BUY AS b PARTITION BY [name]", TRADES, time_column="ts"))
    assert facts(browser) == {"complex events": "3", "events read": "6", "partitions with any": "2"}
    assert browser.text("#view") == "3 of 3 complex events in view, from 1970-01-01 00:00:00 to 1970-01-01 00:02:30"
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
    browser.run("document.getElementById('next').click()")
    assert browser.text("#chosen-title") == "Complex event 2 of 3"
    assert [line[0] for line in rows(browser)[1:]] == ["2", "3"]
    assert rows(browser)[1][5] == "NULL"


def test_a_click_picks_a_complex_event(browse, page):
    events = pa.table({"type": ["A", "A"] + ["C"] * 96 + ["A", "A"], "n": range(100)})
    browser = browse(page("SELECT * FROM S WHERE A : A", events))
    x, y, width, height = browser.run(BOX, "timeline")
    assert browser.text("#chosen-title") == "Complex event 1 of 2"
    left, right = x + 0.015 * width, x + width - 0.015 * width
    bottom = y + height - 30
    browser.click(right, bottom)
    assert browser.text("#chosen-title") == "Complex event 2 of 2"
    assert [line[0] for line in rows(browser)[1:]] == ["98", "99"]
    browser.click(left, bottom)
    assert browser.text("#chosen-title") == "Complex event 1 of 2"
    browser.act({"type": "pointerMove", "duration": 0, "x": int(right), "y": int(bottom)})
    assert browser.text("#tip") == "98 to 99\n1 position, 2 events"


def test_keys_and_drags_zoom_and_move_the_view(browse, page):
    events = pa.table({"type": ["A"] * 1000})
    browser = browse(page("SELECT * FROM S WHERE A", events))
    everything = browser.text("#view")
    assert everything == "1,000 of 1,000 complex events in view, from 0 to 999"
    for _ in range(5):
        press(browser, "+")
    inside = browser.text("#view")
    n_in_view = int(inside.split()[0])
    assert 70 < n_in_view < 90
    assert "from 4" in inside
    press(browser, "ArrowRight")
    assert browser.text("#view") != inside
    x, y, width, _ = browser.run(BOX, "timeline")
    before = int(browser.text("#view").split()[-3])
    browser.drag(x + 0.5 * width, y + 50, x + 0.25 * width, y + 50)
    assert int(browser.text("#view").split()[-3]) - before == pytest.approx(0.25 * n_in_view, abs=3)
    press(browser, "0")
    assert browser.text("#view") == everything
    for _ in range(60):
        press(browser, "+")
    assert int(browser.text("#view").split()[0]) in {2, 3}
    browser.run("scrollTo(0, 400)")
    x, y, width, _ = browser.run(BOX, "over")
    browser.drag(x + 0.25 * width, y + 30, x + 0.5 * width, y + 30)
    assert int(browser.text("#view").split()[0]) == pytest.approx(255, abs=5)


def test_the_filter_selects_partitions_by_name(browse, page):
    events = pa.table({"type": ["A"] * 60, "k": ["one", "two", "three"] * 10 + ["One"] * 30, "n": range(60)})
    browser = browse(page("SELECT * FROM S WHERE A PARTITION BY [k]", events))
    listed = browser.text("#partitions").split()
    assert listed == ["One", "30", "one", "10", "three", "10", "two", "10"]
    fill(browser, "T")
    assert browser.text("#view").startswith("20 of 20 complex events of this filter in view")
    fill(browser, "one")  # the exact name of a partition selects that one only
    assert browser.text("#view").startswith("10 of 10 complex events of this filter in view")
    browser.run("document.querySelectorAll('#partitions button')[3].click()")
    assert browser.run("return document.getElementById('filter').value") == "two"
    browser.run("document.getElementById('next').click()")
    assert [line[3:5] for line in rows(browser)[1:]] == [["two", "1"]]
    browser.run("document.querySelectorAll('#partitions button')[3].click()")
    assert browser.text("#view").startswith("60 of 60 complex events in view")
    fill(browser, "nothing like it")
    assert browser.text("#view").startswith("0 of 0")


def test_hostile_text_is_shown_and_not_executed(browse, page):
    events = TRADES.append_column(HOSTILE, TRADES["note"]).append_column("k", pa.array([HOSTILE] * 6))
    query = f"SELECT * FROM S /* {HOSTILE} */ WHERE SELL AS s ; BUY PARTITION BY [k]"
    browser = browse(page(query, events, time_column="ts", title=HOSTILE))
    assert browser.text("h1") == HOSTILE
    assert browser.text("#query") == query
    assert browser.text("#partitions span") == HOSTILE
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
    assert 100_000 < int(facts(browser)["complex events"].replace(",", "")) < 200_000
    assert browser.text("#view").endswith(" in view, from 7 to 119,997")
    assert LIGHT_BAR in browser.run(INKED, "timeline")
    milliseconds = browser.frames([*"+" * 8, *"-" * 8, "ArrowLeft", "ArrowRight"])
    assert np.median(milliseconds) < 100  # allows for a busy machine; about 16 on an idle one


def test_the_page_names_its_limits(browse, page, monkeypatch):
    monkeypatch.setattr(found_module, "MAX_DRAWN", 100)
    monkeypatch.setattr(found_module, "MAX_REFERENCES", 90)
    events = pa.table({"type": ["A"] * 1000, "k": [f"k{i}" for i in range(1000)], "s": ["z" * 300] * 1000})
    browser = browse(page("SELECT * FROM S WHERE A PARTITION BY [k]", events))
    said = browser.text("#limits")
    for part in [
        "one complex event in 16",
        "the rows of one complex event in 32",
        "120 characters",
        "63 of 1,000 partitions",
    ]:
        assert part in said
    browser.run("document.getElementById('next').click()")
    assert browser.text("#chosen-title") == "Complex event 33 of 1,000"
    assert rows(browser)[1][:2] == ["32", "A"]


@pytest.mark.parametrize(
    ("times", "view"),
    [
        (pa.array([1, 2, 90_061_000], pa.duration("ms")), "from 1 ms to 1 d 1 h"),
        (
            pa.array([2**60, 2**60 + 1, 2**60 + 5], pa.int64()),
            "from 1,152,921,504,606,846,976 to 1,152,921,504,606,846,981",
        ),
        (pa.array([0, 10, 20_000], pa.date32()), "from 1970-01-01 00:00:00 to 2024-10-04 00:00:00"),
        (
            pa.array([0, 1, 2_000_001], pa.timestamp("ns", "UTC")),
            "from 1970-01-01 00:00:00Z to 1970-01-01 00:00:00.002000001Z",
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
    press(browser, "+")


def test_a_page_without_complex_events_says_so(browse, page):
    browser = browse(page("SELECT * FROM S WHERE BUY FILTER BUY[price > 1000]", TRADES))
    assert browser.text("#found") == "The query found no complex events."
    assert not browser.run("return document.getElementById('chosen').checkVisibility()")


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
    assert browser.text("#chosen-title") == "Complex event 1 of 3"
    for at, title in [(2, "Complex event 1 of 1"), (1, "Complex event 1 of 3")]:
        browser.run("document.querySelectorAll('#list button')[arguments[0]].click()", at)
        assert browser.text("#name") == list(rules)[at]
        assert browser.text("#chosen-title") == title
        assert LIGHT_BAR in browser.run(INKED, "over")
    browser.run("document.querySelectorAll('#list button')[0].click()")
    assert browser.text("#found") == "The query found no complex events."
    assert browser.run("return document.querySelectorAll('#list [aria-current]').length") == 1


def test_the_page_says_that_not_all_are_listed(browse, page, monkeypatch):
    monkeypatch.setattr(counted_module, "MAX_LISTED", 100)
    browser = browse(page("SELECT * FROM S WHERE A ; A", pa.table({"type": ["A"] * 40})))
    assert facts(browser)["complex events"] == "780"
    said = browser.text("#some")
    assert "of those that end at one event, at most 2 are listed, 77 in all." in said
    assert browser.text("#chosen-title") == "Complex event 1 of 77 listed"
    assert LIGHT_BAR in browser.run(INKED, "over")
