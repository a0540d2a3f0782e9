"""Messages, help texts and explanations use the words that their readers would look for."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ["cli", "explain", "lints", "notebook", "report", "rule_tests", "rules"]
FILES = [
    *(path for package in PACKAGES for path in sorted((ROOT / "cer_gpu" / package).rglob("*.py"))),
    ROOT / "spark_glue" / "cli.py",
    ROOT / "spark_glue" / "job_command.py",
]
# a word, with what a reader expects in its place
NOT_USED = {
    r"complex events?(?! automat)": "match",
    r"valuations?": "match, or row",
    r"told|tells?": "reported, shown, named",
    r"behind": "after",
    r"moments?": "timestamp",
    r"dealt|dealing|deals": "distributed",
    r"filters? between events": "join predicate",
    r"under way": "current",
    r"stands?": "is",
    r"hardly": "rarely",
    r"in vain": "without result",
    r"anew": "again",
    r"beside": "next to, with",
}


def messages(path):
    """Return the strings of a module that are more than one word, each with its line, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if " " in node.value.strip()
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_messages_use_plain_words(path):
    found = [
        f"line {line}: {text!r}: write {better}"
        for line, text in messages(path)
        for word, better in NOT_USED.items()
        if re.search(rf"\b(?:{word})\b", text, re.IGNORECASE)
    ]
    assert not found


def test_the_words_of_pages_of_the_report_are_plain():
    pages = [path for path in (ROOT / "cer_gpu" / "report").iterdir() if path.suffix in (".js", ".html")]
    texts = [re.sub(r"//.*|/\*.*?\*/", "", path.read_text(encoding="utf-8")) for path in pages]
    assert len(texts) > 5
    assert not [word for word in ("complex event", "valuation") for text in texts if word in text.lower()]
