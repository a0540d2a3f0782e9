"""The widget in JupyterLab, in a real browser: typing, matches, hostile names, and keys that JupyterLab has, too."""

import pyarrow.parquet as pq
import pytest
from exploring.jupyterlab import IN_WIDGET, jupyterlab, open_notebook, packages, run_first_cell, write_notebook
from exploring.test_explore_in_browser import EVENTS, MARKUP
from report.browser import CONTROL, ENTER, SHIFT, TAB

pytestmark = pytest.mark.long("JupyterLab and a browser start")

KEY_IS_TEXT = """
    const texts = [...host.shadowRoot.querySelectorAll("td, text")].map((each) => each.textContent);
    return [texts.some((each) => each.includes(arguments[0])), host.shadowRoot.querySelectorAll("img, script").length,
            document.title];
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    if packages() is None:
        pytest.skip("there is no JupyterLab: make .venv/lab/.installed")
    folder = tmp_path_factory.mktemp("notebooks")
    pq.write_table(EVENTS, folder / "events.parquet")
    with jupyterlab(folder, tmp_path_factory.mktemp("jupyter")) as address:
        yield folder, address


@pytest.fixture
def in_notebook(lab, windows):
    """Run the first of some cells in a notebook; give the browser."""
    folder, address = lab
    browsers = []

    def run(name, *cells):
        write_notebook(folder / name, *cells)
        browsers.append(windows({}))
        open_notebook(browsers[-1], address, name)
        run_first_cell(browsers[-1], (SHIFT, ENTER))
        return browsers[-1]

    yield run
    for browser in browsers:
        browser.open("about:blank")
        browser.console()  # has what JupyterLab says


def test_a_query_typed_in_a_notebook_has_its_matches_and_keeps_its_keys(in_notebook):
    browser = in_notebook("query.ipynb", "import cer_gpu\ncer_gpu.explore('events.parquet')", "a = 1")
    browser.type("SELECT * FROM S WHERE A ; B WITHIN 3 EV")
    browser.until(IN_WIDGET + "return !$('completions').hidden", n_times=600)
    browser.type(TAB)
    browser.until(IN_WIDGET + "return $('facts').innerText.split('\\n')[1] === '1,000'", n_times=1200)
    browser.type("dd")  # deletes a cell, where the notebook has the focus
    browser.chord(SHIFT, ENTER)
    assert browser.run(IN_WIDGET + "return $('text').value") == "SELECT * FROM S WHERE A ; B WITHIN 3 EVENTSdd\n"
    browser.run(IN_WIDGET + "$('text').select()")
    browser.type("SELECT * FROM S WHERE A : B")
    browser.until(IN_WIDGET + "return !$('run').disabled", n_times=600)
    browser.chord(CONTROL, ENTER)
    browser.until(
        IN_WIDGET + "return $('history').options.length > 1 && $('stop').disabled", n_times=3000
    )  # may compile
    assert browser.run("return document.querySelectorAll('.jp-CodeCell').length") == 2
    assert browser.run("return document.querySelector('.jp-InputPrompt').innerText") == "[1]:"  # it ran once


def test_hostile_names_are_text_in_a_notebook_and_colours_follow_its_theme(in_notebook):
    query = "SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [key] WITHIN 1 MINUTES"
    cell = f"import cer_gpu\ncer_gpu.explore('events.parquet', query={query!r})"
    browser = in_notebook("hostile.ipynb", cell)
    browser.until(IN_WIDGET + "return $('matches')?.rows.length > 2", n_times=1200)
    browser.run(IN_WIDGET + "$('matches').querySelector('tbody tr:not(.space)').click()")
    browser.until(IN_WIDGET + "return $('rows').rows.length > 1")
    shown, n_elements, title = browser.run(IN_WIDGET + KEY_IS_TEXT, MARKUP)
    assert shown
    assert n_elements == 0
    assert "hacked" not in title
    paper = "return getComputedStyle($('explorer')).backgroundColor"
    light = browser.run(IN_WIDGET + paper)
    browser.run("document.body.dataset.jpThemeLight = 'false'")
    assert browser.run(IN_WIDGET + paper) == "rgb(17, 20, 25)" != light
