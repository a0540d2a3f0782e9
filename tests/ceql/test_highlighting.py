"""The lexer of Pygments: every word of the grammar, and no text that it does not know."""

import doctest
import re
import tomllib
from importlib import import_module
from pathlib import Path

from pygments.token import Comment, Error, Keyword, Name, Operator, Token

from cer_gpu.ceql import highlighting
from cer_gpu.ceql.highlighting import CeqlLexer, to_html

ROOT = Path(__file__).parents[2]
GRAMMAR = (ROOT / "cer_gpu" / "ceql" / "grammar.lark").read_text(encoding="utf-8")
WORDS = set(re.findall(r'"([A-Z]+)"i', GRAMMAR)) | set(re.findall(r"/([a-z]+)\??\(\?!\\w\)", GRAMMAR))


def kinds(text):
    return [(kind, value) for kind, value in CeqlLexer().get_tokens(text) if value.strip()]


def test_every_word_of_the_grammar_is_known():
    assert {"SELECT", "BETWEEN", "STRICT", "days", "last"} <= WORDS
    for word in WORDS:
        ((kind, value),) = kinds(word.lower())
        assert (value, kind in Keyword or kind is Operator.Word) == (word.lower(), True), word


def test_words_are_whole_and_names_where_they_are_attributes():
    assert kinds("a.limit ASSET LAST(x).a") == [
        (Name, "a"), (Token.Punctuation, "."), (Name.Attribute, "limit"), (Name, "ASSET"), (Name.Function, "LAST"),
        (Token.Punctuation, "("), (Name, "x"), (Token.Punctuation, ")"), (Token.Punctuation, "."),
        (Name.Attribute, "a"),
    ]  # fmt: skip
    assert [value for kind, value in kinds("Q(x) <- T(x) AS t, S(a = x)") if kind is Name.Function] == ["Q", "T", "S"]


def test_signs_are_as_long_as_they_can_be():
    text = "; : -> :+ :* ->* ->+ :{ ->{ .. <- <= >= <> != == ? ! % `odd name` 'it''s' 1.5e3 -- end"
    assert [value for _, value in kinds(text)] == re.findall(r"`[^`]*`|'it''s'|-- end|\S+", text)
    assert kinds("/* a\nb */")[0][0] in Comment


GUIDES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "guides").glob("*.md")))
PAGE = re.sub(r"(?m)^(>>>|\.\.\.) ?", "", GUIDES)
QUERIES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").rglob("*.ceql"))]
QUERIES += re.findall(r'"""(\s*(?:SELECT|\w+\().*?)"""', PAGE, re.DOTALL)


def test_queries_of_the_pages_are_lexed_whole():
    assert len(QUERIES) > 20
    for text in QUERIES:
        tokens = list(CeqlLexer(stripnl=False, ensurenl=False).get_tokens(text))
        assert "".join(value for _, value in tokens) == text
        assert [value for kind, value in tokens if kind is Error] == []


def test_the_package_declares_the_lexer():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, name = project["entry-points"]["pygments.lexers"]["ceql"].split(":")
    assert "ceql" in getattr(import_module(module), name).aliases


def test_html_needs_no_style_sheet_and_escapes():
    html = to_html("SELECT * FROM S WHERE A FILTER A[name = '<b>']")
    assert "class" not in html.replace('class="highlight"', "")
    assert "<b>" not in html
    assert "style=" in html


def test_the_example_prints_what_it_says():
    assert doctest.testmod(highlighting).failed == 0
