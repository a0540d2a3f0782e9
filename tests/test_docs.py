"""Python in README.md and docs/*.md runs and prints what the page says; links lead somewhere, and modules exist.

A ```python block with ``>>>`` lines is a doctest; the blocks of one file share their names. A block after the comment
``<!-- not run -->`` is left alone; one after ``<!-- run where FILE is -->`` runs in the folder of that file, where it
is there (`outside_data`).
"""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import outside_data
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(
    r"(?P<skipped><!-- not run -->\s*)?(?:<!-- run where (?P<needed>[\w.]+) is -->\s*)?^```python\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
RUN_ELSEWHERE = {
    "spark.md",  # tests/spark runs its block, which is plain code
    "first_query.md",  # tests/test_first_query_page.py runs it in an empty folder, with its commands
}


def page_name(page):
    return str(page.relative_to(ROOT))


pages = pytest.mark.parametrize("page", PAGES, ids=page_name)


def blocks(page):
    """Return the code of each block to run, the line of the page on which it begins, and the folder to run it in."""
    text = page.read_text(encoding="utf-8")
    return [
        (match["code"], text.count("\n", 0, match.start("code")), folder)
        for match in BLOCK.finditer(text)
        if not match["skipped"] and page.name not in RUN_ELSEWHERE
        for folder in [ROOT if match["needed"] is None else outside_data.folder_of(match["needed"])]
        if folder is not None
    ]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long("read after the guides"))
        if page.parent.name == "explanation"
        else page
        for page in PAGES
    ],
    ids=page_name,
)
def test_examples_of_the_documentation_print_what_they_say(page, monkeypatch):
    code = "".join(code for code, *_ in blocks(page))
    imported = set(re.findall(r"(?:import|,) (duckdb|matplotlib|pandas|polars)\b", code))
    for name in sorted(imported):
        pytest.importorskip(name)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    for code, line, folder in blocks(page):
        monkeypatch.chdir(folder)
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


NAMES_OF_THE_HOUSE = re.compile(r"\b(?:cer_gpu|spark_glue)(?:\.[A-Za-z_]\w*)+")
FILES_OF_THE_HOUSE = re.compile(r"`((?:\w+/)*\w+(?:\.(?:py|cu|cuh|lark)|/))`")
SOURCES = [
    path
    for room in ("cer_gpu", "spark_glue", "kernels")
    for path in sorted((ROOT / room).rglob("*"))
    if path.suffix in (".py", ".lark", ".cu", ".cuh", ".js")
]


def test_modules_named_in_pages_and_sources_exist():
    """A dotted name, in pages and sources, names a module, and a name in it."""
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*PAGES, *SOURCES]
        for name in NAMES_OF_THE_HOUSE.findall(path.read_text(encoding="utf-8"))
        if not stands(name)
    }
    assert wrong == set()


@pages
def test_files_named_in_backquotes_exist(page):
    """The path is from the root, or from the package."""
    named = FILES_OF_THE_HOUSE.findall(page.read_text(encoding="utf-8"))
    places = {ROOT, ROOT / "cer_gpu", *(path.parent for path in SOURCES)}
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


def stands(name):
    """Return True if a dotted name is a folder, a module, or a name in one, or a file such as cer_gpu.zip."""
    place, *rest = (ROOT / name.split(".")[0], *name.split(".")[1:])
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if not rest or (place.parent == ROOT and rest in (["zip"], ["kernels"], ["__file__"])):
        return True
    module = place / f"{rest[0]}.py"
    if module.exists():
        rest.pop(0)
    else:
        module = place / "__init__.py"
    return not rest or re.search(rf"\b{rest[0]}\b", module.read_text(encoding="utf-8")) is not None


def test_the_picture_of_the_rooms_is_what_its_script_makes():
    pytest.importorskip("grimp")
    script = [sys.executable, str(ROOT / "docs" / "make_architecture.py"), "--check"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def headings(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_pages_of_ceql_have_examples_of_every_operator_and_clause():
    pages = [*(f"ceql_{name}" for name in ("patterns", "clauses", "predicates", "grammar")), "outputs"]
    code = "\n".join(code for name in pages for code, *_ in blocks(ROOT / "docs" / "reference" / f"{name}.md"))
    words = "SELECT FROM WHERE WITHIN LIMIT FILTER AS OR AND NOT LIKE IN RANGE TRUE EVENTS MINUTE SECONDS NONE"
    words += " ALL ANY NEXT LAST MAX STRICT RECENT HOURS HOUR PARTITION CONSUME <> != == % -price"
    words += " PREV(up) FIRST(all) LAST(up) BETWEEN DAY"
    words += " -> ->+ BUY{2} BUY:{2,3} BUY:* BUY? !SELL !(SELL LAG(price) LAG(name, abs( lower("
    words += " HAVING AVG( LIST( aggregate="
    between = ["IS NULL", "IS NOT NULL", "b.name = s.name", "b[name = s.name", "THEN WITHIN", "COUNT(b) AS n"]
    for word in [
        *words.split(),
        *between,
        " ; ",
        " : ",
        ":+",
        "+ ;",
        "{80..101}",
        "{..1000}",
        "S>SELL",
        "`max`",
        "--",
        "/*",
    ]:
        assert word in code, word


def test_rates_of_the_comparison_are_those_that_were_measured():
    results = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks" / "results").glob("*.json")]
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    table = page[page.index("## Rates") :].split("```")[0]
    rows = [line.split("|")[2:-1] for line in table.splitlines() if line.startswith("|")][2:]
    rates = [cell.strip(" *") for row in rows for cell in row if cell.strip()]
    assert len(rates) > 30
    numbers = {float(number) for text in results for number in re.findall(r"\d+\.?\d*(?:e-?\d+)?", text)}
    known = {form.format(number) for number in numbers for form in ("{:,.0f}", "{:.3g}")}
    assert [rate for rate in rates if rate not in known] == []


def test_the_navigation_of_the_site_names_every_page():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r": ([\w/]+\.md)$", settings[settings.index("\nnav:") :], flags=re.MULTILINE)
    outside = ["index.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/data/README.md"]
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted([*outside, *(page for page in pages if not page.startswith("editors/"))])


def test_links_between_readme_and_docs_lead_to_places_in_the_site(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(ROOT / "docs")
    site_pages = importlib.import_module("site_pages")
    known = {
        "index.md",
        "reference/eql.md",
        "guides/gpu.md",
        "CHANGELOG.md",
        "examples/data/README.md",
        "pictures/timeline.png",
    }
    front, page = ("README.md", "index.md", known), ("docs/guides/gpu.md", "guides/gpu.md", known)
    assert (
        site_pages.moved("[a](docs/reference/eql.md#b) [c](CHANGELOG.md)", *front)
        == "[a](reference/eql.md#b) [c](CHANGELOG.md)"
    )
    picture = '[<img src="docs/pictures/timeline.png">](docs/guides/gpu.md)'
    assert site_pages.moved(picture, *front) == '[<img src="pictures/timeline.png">](guides/gpu.md)'
    assert site_pages.moved("[a](../../README.md), [b](../../examples/queries/)", *page) == "[a](../index.md), b"
    assert site_pages.moved("[a](#b) [c](https://d.e)", *page) == "[a](#b) [c](https://d.e)"
    assert site_pages.moved("[a](nowhere.md)", *page) == "[a](nowhere.md)"
