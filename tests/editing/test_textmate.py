"""The extension for editors: its grammar has every word of the parser, and its files name one another rightly."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cer_gpu.ceql.grammar import tree_parser
from cer_gpu.ceql.highlighting import CeqlLexer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "editors" / "vscode"
RULES = json.loads((FOLDER / "syntaxes" / "ceql.tmLanguage.json").read_text(encoding="utf-8"))["patterns"]


def tokens(text):
    """Yield the parts of a text with their scopes, as TextMate does: the first rule of those that match earliest."""
    place = 0
    while place < len(text):
        found = [(match.start(), i, match) for i, rule in enumerate(RULES) if (match := start_of(rule, text, place))]
        if not found:
            return
        _, i, match = min(found, key=lambda each: each[:2])
        end = match.end()
        if "end" in RULES[i]:
            while not (closing := re.compile(RULES[i]["end"]).match(text, end)):
                inner = [re.compile(each["match"]).match(text, end) for each in RULES[i].get("patterns", ())]
                end = next((each.end() for each in inner if each), end + 1)
            end = closing.end()
        if "captures" in RULES[i]:
            yield from ((match[int(n)], each["name"]) for n, each in RULES[i]["captures"].items())
        else:
            yield text[match.start() : end], RULES[i]["name"]
        place = end


def start_of(rule, text, place):
    return re.compile(rule.get("match", rule.get("begin")), re.MULTILINE).search(text, place)


WORDS = [each for each in tree_parser().terminals if each.pattern.value[0].isalpha()]


def test_every_keyword_of_the_parser_is_one_in_the_grammar():
    assert {"SELECT", "WITHIN", "DAYS", "NOCASE", "RISES", "COUNT_DISTINCT"} <= {each.name for each in WORDS}
    for terminal in WORDS:
        word = terminal.name.replace("_", " ")
        text = f"{word.lower()} (" if terminal.name in ("RISES", "COUNT_DISTINCT") else word.lower()
        (found, scope), *_ = tokens(text)
        assert found == word.lower()
        assert scope.split(".")[0] in ("keyword", "constant"), word


def test_names_strings_and_comments_are_no_keywords():
    text = "SELECT a.limit, max(x) -- FROM\nFROM `where` /* WITHIN\n */ S WHERE 'it''s AND\n' ASSET 1.5e3 ->{2"
    assert [(part, scope.split(".")[0]) for part, scope in tokens(text)] == [
        ("SELECT", "keyword"), ("a", "variable"), (".", "punctuation"), ("limit", "variable"), (",", "punctuation"),
        ("max", "entity"), ("(", "punctuation"), ("x", "variable"), (")", "punctuation"), ("-- FROM", "comment"),
        ("FROM", "keyword"), ("`where`", "variable"), ("/* WITHIN\n */", "comment"), ("S", "variable"),
        ("WHERE", "keyword"), ("'it''s AND\n'", "string"), ("ASSET", "variable"), ("1.5e3", "constant"),
        ("->{", "keyword"), ("2", "constant"),
    ]  # fmt: skip


QUERIES = sorted((ROOT / "examples").rglob("*.ceql"))


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_queries_have_the_tokens_of_the_lexer(path):
    text = path.read_text(encoding="utf-8")
    lexed = "".join(part for _, part in CeqlLexer(stripnl=False, ensurenl=False).get_tokens(text))
    assert lexed == text
    assert "".join("".join(part for part, _ in tokens(text)).split()) == "".join(text.split())


def test_the_grammar_is_what_its_script_makes():
    script = [sys.executable, str(ROOT / "docs" / "make_textmate.py"), "--check"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_the_extension_names_files_that_it_has():
    package = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    (language,) = package["contributes"]["languages"]
    grammars = package["contributes"]["grammars"]
    named = [package["main"], language["configuration"], *(each["path"] for each in grammars)]
    assert language["extensions"] == [".ceql"]
    for name in named:
        text = (FOLDER / name).read_text(encoding="utf-8")
        if name.endswith(".json"):
            json.loads(text)
    for grammar in grammars:
        assert json.loads((FOLDER / grammar["path"]).read_text(encoding="utf-8"))["scopeName"] == grammar["scopeName"]
        if grammar["scopeName"] != "source.ceql":  # injected into pages and cells
            assert '"include": "source.ceql"' in (FOLDER / grammar["path"]).read_text(encoding="utf-8")
