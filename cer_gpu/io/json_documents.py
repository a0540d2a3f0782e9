"""JSON of other shapes as JSON lines: arrays of objects, an object with a list of objects, concatenated objects."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from typing import Any

from cer_gpu.errors import EventsError

PROBE_BYTES = 1 << 22
"""Number of bytes at the beginning that determine the shape."""
_STEP_BYTES = 1 << 18
"""Bytes to read at once; doubled while an element is incomplete."""
_CUT = 16
"""Maximum length of a truncated token other than a string."""
_MAX_CHARS = 1 << 28
"""Maximum length of an element, so that an unterminated string is not read to the end of the file."""
_SPACE = " \t\n\r"
_LINE_BREAKS = str.maketrans("\n\r", "  ")


def is_json(head: bytes, *, is_whole: bool) -> bool:
    """Return True if a file begins with JSON objects, or with a list of them.

    Parameters
    ----------
    head
        The first bytes of a file.
    is_whole
        True if these are all bytes.
    """
    text = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "ignore").lstrip(_SPACE)
    if text.startswith("["):
        text = text[1:].lstrip(_SPACE)
    if not text.startswith("{"):
        return False
    try:
        json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        return not is_whole and _is_cut(error, text)
    return True


def are_lines(head: bytes) -> bool:
    """Return True if a file is certainly JSON lines: its first two lines are objects."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()][:2]
    try:
        return len(lines) == 2 and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


class JsonDocuments:
    """File of JSON lines, converted from JSON of another shape while it is read.

    Parameters
    ----------
    opened
        The text in UTF-8.
    name
        Name of the file, for messages.
    """

    closed = False

    def __init__(self, opened: Any, name: str) -> None:
        self._opened = opened
        self._lines = _Elements(opened, name).lines()
        self._rest = b""

    def read(self, n_bytes: int = -1) -> bytes:
        """Return the next bytes, all if `n_bytes` is negative.

        Raises
        ------
        EventsError
            When it is not JSON, or has elements that are not objects.
        """
        parts, size = [self._rest], len(self._rest)
        while n_bytes < 0 or size < n_bytes:
            line = next(self._lines, None)
            if line is None:
                break
            parts.append(line)
            size += len(line)
        data = b"".join(parts)
        if n_bytes < 0:
            n_bytes = len(data)
        self._rest = data[n_bytes:]
        return data[:n_bytes]

    def close(self) -> None:
        """Close the file."""
        self._opened.close()


class _Elements:
    """Elements of JSON text, which is read in steps."""

    def __init__(self, opened: Any, name: str) -> None:
        self._opened, self._name = opened, name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder().raw_decode
        self._text, self._at = "", 0
        self._is_whole = False
        self._n = 0

    def lines(self) -> Iterator[bytes]:
        """Yield the objects, each as a line."""
        first = self._next_char()
        if first == "[":
            yield from self._array()
            if self._next_char():
                raise self._wrong("text after the end of the array")
        elif first == "{":
            list_key = self._wrapped_list()
            yield from self._concatenated() if list_key is None else self._wrapper(list_key)
        elif first:
            raise self._wrong(f"{first!r}")

    # ---- shapes -----------------------------------------------------------------------------------------------

    def _array(self) -> Iterator[bytes]:
        """Yield the elements of an array, up to its end."""
        self._at += 1
        if self._next_char() == "]":
            self._at += 1
            return
        while True:
            yield self._object()
            char = self._next_char()
            self._at += 1
            if char == "]":
                return
            if char != ",":
                raise self._wrong(f"{char!r} in place of a comma between elements" if char else "the end in an array")

    def _concatenated(self) -> Iterator[bytes]:
        while self._next_char():
            yield self._object()

    def _wrapped_list(self) -> str | None:
        """Return the key of the only list of objects in a single top-level object, or None if the objects are rows.

        An object that is longer than `PROBE_BYTES` counts as the only one if a list of objects begins within these.
        """
        while len(self._text) < PROBE_BYTES and self._more(PROBE_BYTES):
            pass
        try:
            wrapper, end = self._scan(self._text, self._at)
        except json.JSONDecodeError:
            return _list_within(self._text[self._at :], self._scan)
        if self._text[end:].strip(_SPACE) or not self._is_whole:
            return None
        lists = [key for key, value in wrapper.items() if _is_list_of_objects(value)]
        if len(lists) != 1:
            empty = [key for key, value in wrapper.items() if value == []]
            return empty[0] if len(wrapper) == len(empty) == 1 else None
        return str(lists[0])

    def _wrapper(self, list_key: str) -> Iterator[bytes]:
        """Yield the elements of the list under a key of an object."""
        self._at += 1
        if self._next_char() == "}":
            return
        while True:
            key, _ = self._next_value()
            if self._next_char() != ":":
                raise self._wrong("an object without a colon")
            self._at += 1
            char = self._next_char()
            if key == list_key and char == "[":
                yield from self._array()
            elif _is_list_of_objects(self._next_value()[0]):
                raise EventsError(
                    f"{self._name}: has lists of objects in {list_key!r} and in {key!r}\n"
                    "hint: only one object with exactly one list of objects inside is read as its rows"
                )
            char = self._next_char()
            self._at += 1
            if char == "}":
                break
            if char != ",":
                raise self._wrong(f"{char!r} in an object" if char else "the end in an object")
            self._next_char()
        if self._next_char():
            raise self._wrong(f"text after the object with the list {list_key!r}")

    # ---- elements ---------------------------------------------------------------------------------------------

    def _object(self) -> bytes:
        self._next_char()
        value, text = self._next_value()
        if not isinstance(value, dict):
            raise EventsError(
                f"{self._name}: element {self._n:,} is {_json_kind(value)}, and no object\n"
                "hint: each event is an object of JSON"
            )
        self._n += 1
        return text.translate(_LINE_BREAKS).encode() + b"\n"

    def _next_value(self) -> tuple[Any, str]:
        """Return the next value and its text, and advance."""
        step = _STEP_BYTES
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._is_whole or not _is_cut(error, self._text):
                    raise self._wrong(error.msg, error.pos) from None
            except RecursionError:
                raise self._wrong("values too deep in others") from None
            else:
                if end < len(self._text) or self._is_whole:  # else a number may go on
                    text, self._at = self._text[self._at : end], end
                    return value, text
            if len(self._text) - self._at > _MAX_CHARS:
                raise self._wrong(f"an element with more than {_MAX_CHARS:,} characters")
            self._more(step)
            step *= 2

    def _next_char(self) -> str:
        """Skip white space, and return the next character, or "" at the end."""
        while True:
            while self._at < len(self._text):
                if (char := self._text[self._at]) not in _SPACE:
                    return char
                self._at += 1
            if not self._more(_STEP_BYTES):
                return ""

    def _more(self, n_bytes: int) -> bool:
        """Read more text, and return False at the end."""
        if self._is_whole:
            return False
        data = self._opened.read(n_bytes)
        self._is_whole = not data
        self._text = self._text[self._at :] + self._decoder.decode(data, final=not data)
        self._at = 0
        return bool(data)

    def _wrong(self, actual: str, at: int | None = None) -> EventsError:
        place = self._at if at is None else at
        near = self._text[max(place - 20, 0) : place + 20]
        return EventsError(
            f"{self._name}: expected objects of JSON, got {actual} after {self._n:,} of them, near {near!r}\n"
            "hint: JSON lines, an array of objects, or one object with one list of objects inside"
        )


def _is_cut(error: json.JSONDecodeError, text: str) -> bool:
    """Return True if an error may be due to the end of the text read so far."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(text) - _CUT


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _list_within(text: str, scan: Callable[[str, int], tuple[Any, int]]) -> str | None:
    """Return the first key of a truncated object under which a list of objects begins, or None."""
    at = 1
    try:
        while True:
            key, at = scan(text, _after_space(text, at))
            at = _after_space(text, _after_space(text, at) + 1)  # the colon
            if text[at] == "[" and text[_after_space(text, at + 1)] == "{":
                return str(key)
            _, at = scan(text, at)
            at = _after_space(text, at) + 1  # the comma
    except (ValueError, IndexError):
        return None


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _json_kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
