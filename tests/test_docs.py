"""Python in README.md and docs/*.md: it runs and prints what the page says; and links lead somewhere.

A ```python block with ``>>>`` lines is a doctest; the blocks of one file share their names. A block after the comment
``<!-- not run -->`` is left alone.
"""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?P<skipped><!-- not run -->\s*)?^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
RUN_ELSEWHERE = {"spark.md"}  # tests/spark runs its block, which is plain code

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page):
    """Return the code of each block to run, and the line of the page on which it begins."""
    text = page.read_text(encoding="utf-8")
    return [
        (match["code"], text.count("\n", 0, match.start("code")))
        for match in BLOCK.finditer(text)
        if not match["skipped"] and page.name not in RUN_ELSEWHERE
    ]


@pages
def test_examples_of_the_documentation_print_what_they_say(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    for code, line in blocks(page):
        test = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), line)
        assert test.examples, f"{page.name}:{line}: a python block without >>>; mark it <!-- not run --> or add some"
        runner.run(test, out=report.append, clear_globs=False)
        names.update(test.globs)
    assert not report, "".join(report)


@pages
def test_links_of_the_documentation_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in headings(linked), f"{page.name} links to {target}"


def headings(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_language_page_has_examples_of_every_operator_and_clause():
    code = "\n".join(code for code, _ in blocks(ROOT / "docs" / "language.md"))
    words = "SELECT FROM WHERE WITHIN LIMIT FILTER AS OR AND NOT LIKE IN RANGE TRUE EVENTS MINUTE SECONDS NONE"
    words += " ALL ANY NEXT LAST MAX STRICT HOURS HOUR PARTITION CONSUME <> != == % -price"
    for word in [*words.split(), " ; ", " : ", ":+", "+ ;", "{80..101}", "{..1000}", "S>SELL", "`max`", "--", "/*"]:
        assert word in code, word
