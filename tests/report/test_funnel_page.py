"""The page of funnels: a key counts once, all starts on request; and sets whose steps build on each other."""

import re
from html import unescape

import numpy as np
import pyarrow as pa
import pytest
from report.pages import HOSTILE

import cer_gpu
from cer_gpu.report import funnel_keys, write_funnel, write_report
from cer_gpu.report.funnel_keys import build_on_each_other

STEPS = ["visit", "cart", "pay"]
TEXTS = {
    f"{n}. {STEPS[n - 1]}": f"SELECT * FROM S WHERE {' ; '.join(STEPS[:n])} PARTITION BY [user]" for n in (1, 2, 3)
}
VISITS = pa.table(
    {
        "type": ["visit", "visit", "visit", "cart", "visit", "visit", "cart", "pay", "visit"],
        "user": ["ann", "ann", "bob", "bob", "ann", "bob", "ann", "ann", "eve"],
        "t": pa.array(range(0, 900, 100), pa.timestamp("s")),
    }
)


def numbers(path, kind):
    """Return the counts of the steps in a table of the page."""
    text = path.read_text(encoding="utf-8")
    table = re.search(rf'<div class="scroll {kind}">(.*?)</table>', text, re.DOTALL)[1]
    return [int(row) for row in re.findall(r'</svg></td><td class="number">(\d+)<', table)]


def test_a_funnel_counts_each_key_once_and_all_starts(tmp_path):
    query = cer_gpu.compile(TEXTS["3. pay"], time_column="t")
    write_funnel(query, VISITS, tmp_path / "funnel.html")
    assert numbers(tmp_path / "funnel.html", "of-keys") == [3, 2, 1]
    assert numbers(tmp_path / "funnel.html", "of-starts") == [6, 4, 3]
    assert '<th scope="col">users</th>' in (tmp_path / "funnel.html").read_text()


def test_a_funnel_without_keys_has_no_switch(tmp_path):
    write_funnel(cer_gpu.compile("SELECT * FROM S WHERE visit ; cart"), VISITS, tmp_path / "funnel.html")
    assert numbers(tmp_path / "funnel.html", "") == [6, 5]
    assert "<input" not in (tmp_path / "funnel.html").read_text()


def test_the_furthest_start_of_a_key_does_not_depend_on_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(funnel_keys, "_MIN_BUFFERED", 5)
    rng = np.random.default_rng(2)
    events = pa.table({"type": rng.choice(STEPS, 400), "user": rng.integers(0, 40, 400)})
    query = cer_gpu.compile(TEXTS["3. pay"] + " WITHIN 50 EVENTS")
    furthest = {}
    for row in query.evaluate(events, output="funnel").to_pylist():
        furthest[row["user"]] = max(row["step"], furthest.get(row["user"], 0))
    for size in (7, 400):
        write_funnel(query, pa.Table.from_batches(events.to_batches(size)), tmp_path / "funnel.html")
        expected = [sum(step >= k for step in furthest.values()) for k in (1, 2, 3)]
        assert numbers(tmp_path / "funnel.html", "of-keys") == expected


def test_a_hostile_key_is_text(tmp_path):
    events = VISITS.append_column(HOSTILE, VISITS["user"])
    write_funnel(
        cer_gpu.compile(f"SELECT * FROM S WHERE visit PARTITION BY [`{HOSTILE}`]"), events, tmp_path / "f.html"
    )
    text = (tmp_path / "f.html").read_text()
    assert "<script" not in text
    assert HOSTILE in unescape(text)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (TEXTS, True),
        ({"one": TEXTS["1. visit"]}, False),
        (TEXTS | {"other": "SELECT * FROM S WHERE cart ; pay PARTITION BY [user]"}, False),
        (TEXTS | {"other": "SELECT * FROM S WHERE visit+ PARTITION BY [user]"}, False),
        ({name: text.replace(" PARTITION BY [user]", "") for name, text in TEXTS.items()}, False),
    ],
)
def test_sets_whose_steps_build_on_each_other_are_recognised(texts, expected):
    assert build_on_each_other({name: cer_gpu.compile(text) for name, text in texts.items()}) == expected


def test_a_page_of_such_a_set_compares_keys_and_matches_on_request(browse, tmp_path):
    write_report(cer_gpu.compile_all(TEXTS, time_column="t"), VISITS, tmp_path / "report.html")
    browser = browse(tmp_path / "report.html")
    assert [row[:3] for row in browser.table("#list")] == [
        ["query", "users", "matches"],
        ["1. visit", "3", "6"],
        ["2. cart", "2", "4"],
        ["3. pay", "1", "3"],
    ]
    shares = "return [...document.querySelectorAll('.share')].map((bar) => +bar.style.getPropertyValue('--share'))"
    assert browser.run(shares) == pytest.approx([1, 2 / 3, 1 / 3])
    assert browser.text("#by-keys") == "Compare users"
    browser.press("#by-matches")
    assert browser.run(shares) == pytest.approx([1, 4 / 6, 3 / 6])


def test_the_page_of_a_funnel_switches_to_all_starts(browse, tmp_path):
    write_funnel(cer_gpu.compile(TEXTS["3. pay"], time_column="t"), VISITS, tmp_path / "funnel.html")
    browser = browse(tmp_path / "funnel.html")
    seen = "return ['.of-keys', '.of-starts'].map((name) => document.querySelector(name).checkVisibility())"
    assert browser.run(seen) == [True, False]
    browser.press("#starts")
    assert browser.run(seen) == [False, True]
