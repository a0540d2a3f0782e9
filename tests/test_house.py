"""Promises of the repository: light imports, short modules, small folders, plain docstrings, no package index."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST = 600
MOST_MODULES = 24
# no sentence of a docstring begins with one of these: it would be a question, or a part of a sentence
OPENERS = {"What", "Whether", "Where", "Which", "How", "Of", "So"}
# in two parts, so that this file does not hold them
INDEX_HOSTS = ["pypi" + ".org", "pypi" + ".python", "python" + "hosted", "npmjs" + ".org"]


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, cer_gpu; print(sorted({'cupy', 'pyspark', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_modules_are_short():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for package in ("cer_gpu", "spark_glue")
        for path in (ROOT / package).rglob("*.py")
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def folders():
    """The folders of the package that hold modules, with the names of these."""
    found = {}
    for path in (ROOT / "cer_gpu").rglob("*.py"):
        found.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path.name)
    return found


def test_folders_hold_few_modules():
    assert folders()
    assert {name: len(modules) for name, modules in folders().items() if len(modules) > MOST_MODULES} == {}


def test_the_map_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [f"{name}/" for name in folders() if name != "cer_gpu"]
    rooms += [f"cer_gpu/{module}" for module in folders()["cer_gpu"] if module != "__init__.py"]
    assert [room for room in rooms if f"| `{room}` |" not in page] == []


def docstrings(path):
    """Yield the line and the text of each docstring, those of constants and attributes included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, inspect.cleandoc(node.value.value)


def first_words(text):
    """Yield the first word of each sentence; a paragraph, an item and an indented description begin one."""
    before = ""
    for line in text.splitlines():
        indented = len(line) - len(line.lstrip(" -")) > len(before) - len(before.lstrip(" -"))
        begins = not before.strip() or before.rstrip().endswith((".", "!", "?")) or indented or line[:2] == "- "
        pattern = r"(?:[.!?]\s+|^[\s-]*)(\w+)" if begins else r"[.!?]\s+(\w+)"
        yield from re.findall(pattern, line)
        before = line


def test_first_words_are_those_of_sentences_items_and_descriptions():
    text = "One of\nSo many.  Two? Three\n\nFour\n----\nfive\n    Of them.\n\n- Six: so\n  What\n- So\n"
    assert list(first_words(text)) == ["One", "Two", "Three", "Four", "Of", "Six", "So"]


def test_no_sentence_of_a_docstring_begins_with_a_question_word():
    files = [path for package in ("cer_gpu", "spark_glue") for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 50
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word} ..."
        for path in files
        for line, text in docstrings(path)
        for word in first_words(text)
        if word in OPENERS
    ]
    assert found == []


def test_no_file_names_a_package_index():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of tracked files")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]
    assert files
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in files
        if b"\0" not in (content := path.read_bytes())
        for host in INDEX_HOSTS
        if host.encode() in content.lower()
    ]
    assert found == []
