"""Values of Sigma, as pySigma has them, as patterns and numbers of CEQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from sigma.exceptions import SigmaPlaceholderError, SigmaRegularExpressionError
from sigma.modifiers import SigmaCaseSensitiveModifier
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import RE2RegexEngine, RegexPattern
from sigma.rule import SigmaDetection
from sigma.types import (
    CompareOperators,
    Placeholder,
    SigmaFieldReference,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SpecialChars,
)

from cer_gpu.ceql.paths import string_literal
from cer_gpu.ceql.patterns import check_regex
from cer_gpu.sigma.formulas import verbatim

_LACKS = {
    "(?=": "lookahead (?=...)",
    "(?!": "lookahead (?!...)",
    "(?<=": "lookbehind (?<=...)",
    "(?<!": "lookbehind (?<!...)",
    "(?>": "atomic groups (?>...)",
    "(?(": "conditions (?(...)...)",
    "(?P=": "back references (?P=...)",
    "(?#": "comments (?#...)",
}
_ELSEWHERE = {"Z": r"\z", "/": "/"}
"""Escapes that RE2 writes in another way."""
_CODE_POINT = re.compile(r"u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_POSSESSIVE = re.compile(r"[*+?}]\+")


@lru_cache(maxsize=1024)
def re2_of_sigma(pattern: str, flags: str = "") -> str:
    """Return a regular expression for `LIKE`, which matches the same strings as RE2.

    Parameters
    ----------
    pattern
    flags
        Letters of ``i``, ``m`` and ``s``, as RE2 has them.

    Raises
    ------
    ValueError
        With the reason, for what RE2 cannot say.
    """
    written, i, in_class = [], 0, False
    while i < len(pattern):
        sign = pattern[i]
        if sign == "\\":
            text, i = _escape(pattern, i + 1, in_class)
            written.append(text)
            continue
        if in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
            first = re.compile(r"\[\^?\]?").match(pattern, i)  # a bracket in first position is a member
            assert first is not None
            written.append(first.group().replace("]", r"\]"))
            i = first.end()
            continue
        elif sign == "(":
            for begin in sorted(_LACKS, key=len, reverse=True):
                if pattern.startswith(begin, i):
                    raise ValueError(f"{_LACKS[begin]}, which RE2 has not")
        elif _POSSESSIVE.match(pattern, i):
            raise ValueError(f"possessive repetition {pattern[i : i + 2]}, which RE2 has not")
        written.append(sign)
        i += 1
    text = (f"(?{flags})" if flags else "") + "".join(written)
    check_regex(text)
    return text


def _escape(pattern: str, i: int, in_class: bool) -> tuple[str, int]:
    """Return what follows a backslash, as RE2 writes it, and the position after it."""
    sign = pattern[i : i + 1]
    if not in_class and sign.isdigit() and sign != "0":
        raise ValueError(f"back references \\{sign}, which RE2 has not")
    point = _CODE_POINT.match(pattern, i)
    if point:
        return rf"\x{{{point[1] or point[2]}}}", point.end()
    return _ELSEWHERE.get(sign, f"\\{sign}"), i + len(sign)


OPERATORS_OF_SIGMA = {
    CompareOperators.LT: "<",
    CompareOperators.LTE: "<=",
    CompareOperators.GT: ">",
    CompareOperators.GTE: ">=",
    CompareOperators.NEQ: "<>",
}


@dataclass
class CasedFieldReference(SigmaFieldReference):
    """A reference to a field that is compared with the case of its letters: `cased` before `fieldref`."""


_RUN, _ONE = SpecialChars.WILDCARD_MULTI, SpecialChars.WILDCARD_SINGLE


def glob_of_value(value: SigmaString, anywhere: bool = False) -> str:
    """Return the pattern of GLOB, in quotes, that matches as a text of Sigma does; `anywhere`: as a part of a text.

    Raises
    ------
    SigmaPlaceholderError
        For a placeholder that no pipeline has replaced.
    """
    signs = []
    for part in value.s:
        if isinstance(part, str):
            signs.append(verbatim(part))
        elif isinstance(part, Placeholder):
            raise SigmaPlaceholderError(f"the placeholder %{part.name}% has no values: give them by a pipeline")
        else:
            signs.append("*" if part is _RUN else "?")
    if anywhere:
        signs = [
            *(() if signs[:1] == ["*"] else ("*",)),
            *signs,
            *(() if signs[-1:] == ["*"] and signs[1:] else ("*",)),
        ]
    return string_literal("".join(signs))


def regex_of_value(value: SigmaRegularExpression) -> str:
    """Return the regular expression of LIKE, in quotes.

    Raises
    ------
    SigmaRegularExpressionError
        For what RE2 cannot say.
    """
    for part in value.regexp.s:
        if isinstance(part, Placeholder):
            raise SigmaPlaceholderError(f"the placeholder %{part.name}% has no values: give them by a pipeline")
    text = "".join(part if isinstance(part, str) else "*" if part is _RUN else "?" for part in value.regexp.s)
    flags = "".join(sorted(value.sigma_to_re_flag[flag] for flag in value.flags))
    try:
        return string_literal(re2_of_sigma(text, flags))
    except ValueError as error:
        raise SigmaRegularExpressionError(f"Regular expression {text!r} is invalid: {error}") from None


class NamingEngine(RE2RegexEngine):
    """The engine by which pySigma checks regular expressions: constructs that RE2 lacks are named in errors."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copy the engine by creating a new one: it refers to a module."""
        return NamingEngine, ()

    def compile(self, pattern: str, flags: int = 0) -> RegexPattern:
        """Return a regular expression; raises ValueError if RE2 does not support it."""
        return super().compile(re2_of_sigma(pattern), flags)

    @property
    def error(self) -> type[Exception]:
        """The error for strings that are not regular expressions."""
        return ValueError


POLICY = SigmaPolicy(regex_engine=NamingEngine())
"""Settings of pySigma for rules that are read here."""


def mark_cased(detection: SigmaDetection) -> None:
    """Make references to fields with the modifier `cased` such of letters with their case, which pySigma forgets."""
    for item in detection.detection_items:
        if isinstance(item, SigmaDetection):
            mark_cased(item)
        elif SigmaCaseSensitiveModifier in item.modifiers:
            item.value = [
                CasedFieldReference(each.field, each.starts_with, each.ends_with)
                if isinstance(each, SigmaFieldReference)
                else each
                for each in item.value
            ]


def number_of(value: SigmaNumber) -> str:
    """Return a number of CEQL."""
    return repr(value.number)
