"""The reference of Sigma against examples of the specification, and against what was chosen where it is silent."""

import datetime as dt

import pytest

from tests.sigma import reference as ref

yaml = pytest.importorskip("yaml")


def finds(detection, event, condition="selection"):
    """Return whether a rule of one selection, in YAML, finds an event."""
    read = yaml.safe_load(detection)
    return ref.matches({"detection": {**({"selection": read}), "condition": condition}}, event)


@pytest.mark.parametrize(
    ("value", "fits", "fails"),
    [
        ("prog?.exe", "progA.exe", "prog.exe"),
        ("antivirus_V*.exe", "ANTIVIRUS_V21.2.exe", "antivirus.exe"),
        (r"C:\a", "c:\\A", "c:\\\\a"),
        (r"a\*b", "a*b", "axb"),
        (r"a\\*b", "a\\xyzb", "a*b"),
        (r"a\\\*b", "a\\*b", "a\\xb"),
        (r"a\\\\b", r"a\\b", r"a\b"),
        (r"a\\\b", r"a\\b", r"a\b"),
        ("a\\", "a\\", "a"),
        ("", "", "x"),
        ("É*", "é!", "e!"),
    ],
)
def test_texts_have_wildcards_and_escapes(value, fits, fails):
    test = ref.item("a", value)
    assert test({"a": fits})
    assert not test({"a": fails})
    assert not test({})


@pytest.mark.parametrize(
    ("key", "value", "fits", "fails"),
    [
        ("a|contains", "b", "aBc", "ac"),
        ("a|startswith", "b", "Ba", "ab"),
        ("a|endswith", "b", "aB", "ba"),
        ("a|contains|cased", "b", "abc", "aBc"),
        ("a|contains|all", ["a", "b"], "b a", "b"),
        ("a|neq", ["x", "y"], "z", "Y"),
        ("a|re", "^a.c$", "abc", "xabc"),
        ("a|re", "b", "abc", "aBc"),
        ("a|re|i", "B", "abc", "ac"),
        ("a|re|m", "^b", "a\nb", "ab"),
        ("a|re|s", "a.b", "a\nb", "ab"),
        ("a|cidr", "10.0.0.0/8", "10.6.1.2", "11.0.0.1"),
        ("a|cidr", "2001:db8::/32", "2001:db8::5", "::1"),
        ("a|base64", "abc", "YWJj", "abc"),
        ("a|base64offset|contains", "abcd", "xx" + "LWFiY2Q=", "YWJj"),
        ("a|wide|base64", "ab", "YQBiAA==", "YWI="),
        ("a|utf16be|base64", "ab", "AGEAYg==", "YQBiAA=="),
        ("a|utf16|base64", "ab", "//5hAGIA", "YQBiAA=="),
        ("a|windash|contains", " -f", "x \N{EN DASH}F", "x+f"),
        ("a|windash", "-a-b", "/a-b", "/a/b"),
        ("a|lt", 5, "4", 5),
        ("a|gte", 5, 5.0, "x"),
        ("a", 4688, "4688", 4689),
        ("a", [1, 2], 2, 3),
        ("a", "12", 12, 1),
        ("a", True, "TRUE", 1),
        ("a|hour", 23, dt.datetime(2024, 12, 31, 23, 5), dt.datetime(2024, 12, 31, 22, 5)),
        ("a|week", 1, dt.datetime(2024, 12, 31), dt.datetime(2024, 12, 29)),
        ("a|minute|gte", 5, dt.datetime(2024, 12, 31, 23, 5), dt.datetime(2024, 12, 31, 23, 4)),
        ("a", "x", ["y", "X"], []),
        ("a|fieldref|startswith", "b", "OTHER one", "one"),
    ],
)
def test_modifiers_and_values(key, value, fits, fails):
    test = ref.item(key, value)
    assert test({"a": fits, "b": "other"})
    assert not test({"a": fails, "b": "other"})
    assert test({"b": "other"}) is ("neq" in key)


def test_missing_values_and_presence():
    assert ref.item("a", None)({})
    assert not ref.item("a", None)({"a": ""})
    assert ref.item("a|exists", True)({"a": ""})
    assert ref.item("a|exists", False)({"a": None})
    assert ref.item("a", ["x", None])({})


@pytest.mark.parametrize(
    ("detection", "event", "expected"),
    [
        ("{a: x, b: y}", {"a": "x", "b": "Y"}, True),
        ("{a: x, b: y}", {"a": "x"}, False),
        ("[{a: x}, {b: y}]", {"b": "y"}, True),
        ("[evil, 'b*d']", {"t": "is EVIL"}, True),
        ("[evil, 'b*d']", {"t": "a bad one"}, True),
        ("[evil]", {"t": "live"}, False),
        ("{'|all': [one, two]}", {"t": "ONE", "u": "two"}, True),
        ("{'|all': [one, two]}", {"t": "one"}, False),
        ("[evil, {a: x}]", {"a": "X"}, True),
        ("12", {"t": "port 12", "n": 1}, True),
        ("12", {"n": 12}, False),
    ],
)
def test_selections(detection, event, expected):
    assert finds(detection, event) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("yes_1", True),
        ("not yes_1", False),
        ("no_1 or yes_1 and yes_2", True),
        ("yes_1 or no_1 and no_2", True),
        ("(yes_1 or no_1) and no_2", False),
        ("not no_1 and yes_1", True),
        ("not (no_1 and yes_1)", True),
        ("1 of no_*", False),
        ("any of *_1", True),
        ("all of yes_*", True),
        ("all of them", False),
        ("1 of them", True),
        ("all of yes_* and not 1 of no_*", True),
        ("1 of _hidden*", True),
        ("not not yes_1", True),
        (["no_1", "yes_1"], True),
        (["no_1", "no_2"], False),
    ],
)
def test_conditions(condition, expected):
    yes, no = {"a": "x"}, {"a": "y"}
    names = {"yes_1": yes, "yes_2": yes, "no_1": no, "no_2": no, "_hidden": yes}
    assert ref.matches({"detection": {**names, "condition": condition}}, {"a": "x"}) is expected


def test_hidden_selections_are_not_meant_by_them():
    rule = {"detection": {"seen": {"a": "x"}, "_hidden": {"a": "y"}, "condition": "all of them"}}
    assert ref.matches(rule, {"a": "x"})


def test_log_sources_are_asked_first():
    rule = {"logsource": {"service": "x"}, "detection": {"s": {"a": "x"}, "condition": "s"}}
    assert ref.matches(rule, {"a": "x"}, lambda source, event: source["service"] == "x")
    assert not ref.matches(rule, {"a": "x"}, lambda source, event: False)


@pytest.mark.parametrize("condition", ["nothing of them", "1 of absent*", "s s", "(s"])
def test_what_is_no_condition_is_refused(condition):
    with pytest.raises((ref.Unsupported, KeyError)):
        ref.matches({"detection": {"s": {"a": "x"}, "condition": condition}}, {})
