"""Make the TextMate grammar of CEQL, which editors highlight by, from the terminals of the parser.

    .venv/bin/python docs/make_textmate.py          # writes docs/editors/vscode/syntaxes/ceql.tmLanguage.json
    .venv/bin/python docs/make_textmate.py --check  # exit code 1 where the file is not what this writes

Rules are those of the lexer for Pygments (cer_gpu.ceql.highlighting), which reads the terminals; comments and strings,
which may go over lines, are written here, as TextMate reads line by line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from cer_gpu.ceql.highlighting import CeqlLexer

GRAMMAR = Path(__file__).with_name("editors") / "vscode" / "syntaxes" / "ceql.tmLanguage.json"
SCOPES = {
    Keyword: "keyword.control.ceql",
    Keyword.Constant: "constant.language.ceql",
    Name: "variable.other.ceql",
    Name.Function: "entity.name.function.ceql",
    Number: "constant.numeric.ceql",
    Operator: "keyword.operator.ceql",
    Operator.Word: "keyword.operator.word.ceql",
    Punctuation: "punctuation.separator.ceql",
}
"""Names that editors' themes give colours, by the kinds of tokens."""
_WHOLE = "(?![a-z_0-9])"
_IGNORED = (Text, Comment.Single, Comment.Multiline, String.Single)


def _own_rules() -> list[dict[str, Any]]:
    """Return the rules of what goes over lines."""
    return [
        {"name": "comment.line.double-dash.ceql", "match": "--.*$"},
        {"name": "comment.block.ceql", "begin": r"/\*", "end": r"\*/"},
        {
            "name": "string.quoted.single.ceql",
            "begin": "'",
            "end": "'(?!')",
            "patterns": [{"name": "constant.character.escape.ceql", "match": "''"}],
        },
        {"name": "variable.other.quoted.ceql", "match": "`[^`]+`"},
    ]


def _rules() -> list[dict[str, Any]]:
    """Return the rules of the lexer: names behind dots, words, names, numbers, signs."""
    kinds: dict[Any, list[str]] = {}
    for pattern, kind in CeqlLexer.tokens["root"]:
        if kind not in _IGNORED and "`" not in pattern:
            kinds.setdefault(kind if kind in SCOPES else None, []).append(pattern)
    captures = {"1": {"name": SCOPES[Punctuation]}, "2": {"name": "variable.other.property.ceql"}}
    found = _own_rules() + [{"match": f"(?i){pattern}", "captures": captures} for pattern in kinds.pop(None)]
    words = [kind for kind, patterns in kinds.items() if patterns[0][0].isalpha()]
    for kind in sorted(words, key=SCOPES.__getitem__):
        found.append({"name": SCOPES[kind], "match": _of_words(kinds.pop(kind))})
    for kind in (Name.Function, Number, Name):
        (pattern,) = kinds.pop(kind)
        found.append({"name": SCOPES[kind], "match": f"(?i){pattern}"})
    for kind in (Operator, Punctuation):  # '..' before '.'
        signs = sorted(kinds.pop(kind), key=lambda sign: (-len(sign.replace("\\", "")), sign))
        found.append({"name": SCOPES[kind], "match": "|".join(signs)})
    assert not kinds
    return found


def _of_words(patterns: list[str]) -> str:
    """Return the pattern of whole words, of which a few look further."""
    plain = sorted(pattern.removesuffix(_WHOLE) for pattern in patterns if pattern.count("(") == 1)
    others = sorted(pattern for pattern in patterns if pattern.count("(") > 1)
    return r"(?i)\b(?:" + "|".join([f"(?:{'|'.join(plain)}){_WHOLE}", *others]) + ")"


def text() -> str:
    """Return the grammar as JSON."""
    grammar = {
        "comment": "made by docs/make_textmate.py from the terminals of cer_gpu/ceql/grammar.lark",
        "name": "CEQL",
        "scopeName": "source.ceql",
        "fileTypes": ["ceql"],
        "patterns": _rules(),
    }
    return json.dumps(grammar, indent=2) + "\n"


def main() -> int:
    """Write the file, or compare it."""
    if "--check" in sys.argv[1:]:
        if GRAMMAR.exists() and GRAMMAR.read_text(encoding="utf-8") == text():
            return 0
        print(f"{GRAMMAR.name} is not what docs/make_textmate.py writes: run make docs", file=sys.stderr)
        return 1
    GRAMMAR.parent.mkdir(parents=True, exist_ok=True)
    GRAMMAR.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
