"""Files about a release: they tell one version, and the same dependencies."""

import datetime
import importlib.util
import re
import tomllib
from pathlib import Path

import yaml

import cer_gpu

ROOT = Path(__file__).parent.parent
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_changelog_begins_with_what_is_unreleased_and_then_this_version():
    headings = re.findall(r"^## (.*)$", CHANGES, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    version, date = headings[1].split(" - ")
    assert version == f"[{cer_gpu.__version__}]"
    datetime.date.fromisoformat(date)


def test_the_citation_tells_this_version_and_its_date():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["version"] == cer_gpu.__version__
    assert f"## [{cited['version']}] - {cited['date-released']}\n" in CHANGES
    assert cited["license"] == PROJECT["license"]


def test_the_recipe_for_conda_has_this_version_and_the_dependencies_of_the_project():
    text = (ROOT / "docs" / "contributing" / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    assert f'{{% set version = "{cer_gpu.__version__}" %}}' in text
    recipe = yaml.safe_load(re.sub(r"\{\{ *(\w+) *\}\}", r"\1", re.sub(r"\{%.*%\}", "", text)))
    needed = [each.replace(" ", "") for each in recipe["requirements"]["run"]]
    assert needed == [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]
    entry_points = {f"{name} = {target}" for name, target in PROJECT["scripts"].items()}
    assert set(recipe["build"]["entry_points"]) == entry_points


def test_one_page_says_how_to_set_up_and_points_to_the_others():
    pages = sorted((ROOT / "docs" / "contributing").glob("*.md"))
    first = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [page.name for page in pages] == ["architecture.md", "glossary.md", "recipes.md", "release.md", "tests.md"]
    assert all(f"(docs/contributing/{page.name})" in first for page in pages)
    assert not any("pre-commit install" in page.read_text(encoding="utf-8") for page in pages)


def test_links_of_the_site_to_nowhere_are_told(tmp_path):
    spec = importlib.util.spec_from_file_location("check_links", ROOT / "docs" / "check_links.py")
    assert spec is not None
    assert spec.loader is not None
    check_links = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check_links)
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="#x"><a href="#y"><a href="b.html#z"><a href="c.html">'
        '<a href="http://d.e/"><img src="f.svg">'
    )
    (tmp_path / "b.html").write_text('<h2 id="z">')
    wrong = [line.split(": ")[1] for line in check_links.wrong_in_site(tmp_path)]
    assert wrong == ["#y", "c.html", "http://d.e/", "f.svg"]
    assert check_links.wrong_in_checkout() == []
