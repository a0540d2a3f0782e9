"""The page of explore in a real browser, by the keyboard: results, problems, completions, stop, hostile names."""

import pyarrow as pa
import pytest
from report.browser import BACKSPACE, DOWN, ENTER, ESCAPE, TAB
from report.pages import HOSTILE

from cer_gpu.rules import Rule

pytestmark = pytest.mark.long("a browser types and waits")

N = 3000
MARKUP = "<img src=x onerror=\"document.title='hacked'\">"
EVENTS = pa.table(
    {
        "type": ["A", "B", "C"] * (N // 3),
        "key": [f"{MARKUP}{i // 3 % 50}" for i in range(N)],
        MARKUP: [HOSTILE] * N,
        "x": [i % 7 for i in range(N)],
        "ts": pa.array([i * 1000 for i in range(N)], pa.timestamp("ms")),
    }
)
QUERY = "SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [key] WITHIN 1 MINUTES"


@pytest.fixture
def explorer(browse, serve):
    """Open the page of explore over events."""

    def open_page(events=EVENTS, rules=None, **options):
        browser = browse(serve(events, rules=rules), **options)
        browser.until("return document.getElementById('of-events').innerText.includes('event')")
        opened.append(browser)
        return browser

    opened = []
    yield open_page
    for browser in opened:  # before the server ends
        browser.open("about:blank")


def until_matches(browser):
    browser.until(
        "return /matches/.test(document.getElementById('facts').innerText) "
        "&& document.getElementById('timeline') !== null",
        n_times=600,  # the first evaluation may compile
    )


def test_typing_shows_results_and_the_keyboard_completes_them(explorer):
    browser = explorer()
    browser.type("SELECT * FROM S WHERE A ; B WITHIN 3 EV")
    browser.until("return !document.getElementById('completions').hidden")
    browser.type(TAB)
    browser.until("return document.getElementById('text').value.endsWith('3 EVENTS')")
    until_matches(browser)
    assert browser.text("#facts").split("\n")[:2] == ["matches", "1,000"]
    assert "all 3,000 events" in browser.text("#sample")
    assert "a B event" in browser.text("#meaning")
    assert len(browser.table("#funnel")) == 3
    browser.type(ENTER)
    browser.until("return document.querySelectorAll('#history option').length === 2")


def test_each_key_in_the_middle_of_a_text_has_its_results(explorer):
    browser = explorer()
    begun = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[x < 1"
    browser.type(begun + "] WITHIN 9 EVENTS")
    until_matches(browser)
    browser.run("document.getElementById('text').setSelectionRange(arguments[0], arguments[0])", len(begun))
    for key in ("0", BACKSPACE, "0", BACKSPACE):
        before = browser.run("return Number(document.getElementById('results').dataset.question)")
        browser.type(key)
        browser.until("return Number(document.getElementById('results').dataset.question) === arguments[0] + 1", before)
    assert browser.console() == []


def test_completions_are_chosen_by_arrows_and_closed_by_escape(explorer):
    browser = explorer()
    browser.type("SELECT * FROM S WHERE A AS a FILTER a[")
    browser.until("return !document.getElementById('completions').hidden")
    browser.type(DOWN + ENTER)
    chosen = browser.run("return document.getElementById('text').value")
    assert len(chosen) > len("SELECT * FROM S WHERE A AS a FILTER a[")
    browser.type(".")
    browser.type(ESCAPE)
    assert browser.run("return document.getElementById('completions').hidden")


def test_problems_are_underlined_where_they_are(explorer):
    browser = explorer()
    browser.type("SELECT * FROM S WHERE A AS first FILTER frst[x > 1] WITHIN 9 EVENTS")
    browser.until("return document.querySelector('#paint .wrong')?.textContent === 'frst'")
    assert "did you mean 'first'?" in browser.text("#problems")
    assert browser.run("return document.getElementById('run').disabled")


def test_hostile_names_and_values_are_text(explorer):
    rules = {MARKUP: Rule(MARKUP, "SELECT * FROM S WHERE A"), HOSTILE: Rule(HOSTILE, QUERY)}
    browser = explorer(rules=rules)
    browser.until("return document.querySelectorAll('#rules tbody tr').length === 2")
    browser.run(
        "[...document.querySelectorAll('#rules button')].find((each) => each.textContent.includes('script')).click()"
    )
    until_matches(browser)
    browser.run("document.querySelector('#matches tbody tr:not(.space)').click()")
    browser.until("return document.querySelectorAll('#rows tr').length > 1")
    assert MARKUP in browser.text("#rows")
    assert browser.run("return document.title") == "events - explore"
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return document.querySelectorAll('#explorer script').length") == 0


def test_a_long_run_is_stopped(explorer):
    browser = explorer()
    text = "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c ; A AS d FILTER d.x > a.x + b.x + c.x"
    browser.run(
        "const text = document.getElementById('text'); text.value = arguments[0];"
        "text.dispatchEvent(new Event('input'));"
        "document.getElementById('run').disabled = false; document.getElementById('run').click()",
        text,
    )
    browser.until("return !document.getElementById('stop').disabled")
    browser.press("#stop")
    browser.until("return document.getElementById('sample').innerText === 'stopped'")


@pytest.mark.parametrize("options", [{"width": 500}, {"dark": True}])
def test_the_page_fits_a_phone_and_the_dark(explorer, options):
    browser = explorer(**options)
    browser.type(QUERY)
    until_matches(browser)
    wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(17, 20, 25)") == ("dark" in options)


def test_without_a_query_a_click_on_a_type_begins_one(explorer):
    browser = explorer()
    browser.until("return document.querySelectorAll('#overview-types button').length === 3")
    assert browser.run("return document.getElementById('overview').open")
    assert "from 1970-01-01T00:00:00 to 1970-01-01T00:49:59" in browser.text("#overview-sample")
    assert MARKUP in browser.text("#overview-columns")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    browser.press("#overview-types tbody tr:nth-child(2) button")
    assert browser.run("return document.getElementById('text').value") == "SELECT * FROM events WHERE B"
    assert not browser.run("return document.getElementById('overview').open")
    browser.type(" ; ")
    browser.press("#overview-types tbody tr:nth-child(3) button")
    assert browser.run("return document.getElementById('text').value") == "SELECT * FROM events WHERE B ; C"
    until_matches(browser)
