"""Meaning of EQL, fact by fact, as docs/reference/eql.md lists it with the sources."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.errors import OptionError, QueryError, QuerySyntaxError, QueryTypeError


def table_of(events):
    """A table of events: a category, a time in seconds, which is the row's number unless said, and other columns."""
    names = dict.fromkeys(name for event in events for name in event)
    rows = [{**dict.fromkeys(names), "event.category": "process", "@timestamp": i} | e for i, e in enumerate(events)]
    table = pa.Table.from_pylist(rows)
    place = table.column_names.index("@timestamp")
    return table.set_column(place, "@timestamp", table["@timestamp"].cast(pa.timestamp("s")))


def find(text, events, **options):
    """The rows of each answer."""
    table = table_of(events)
    query = cer_gpu.compile(text, language="eql", schema=table.schema, **options)
    return query.evaluate(table)["positions"].to_pylist()


def rows_where(condition, events, **options):
    return [row for (row,) in find(f"any where {condition}", events, **options)]


def steps(letters, **columns):
    """Events named by letters, in order, with other columns."""
    return [{"name": each, **{k: v[i] for k, v in columns.items()}} for i, each in enumerate(letters)]


def step(letter):
    return f'[any where name == "{letter}"]'


NAMES = [{"name": "a"}, {"name": "b"}, {"name": None}]

# ------------------------------------------------------------------------------------------------ missing values


@pytest.mark.parametrize(
    "condition",
    [
        'name != "a"',
        'not name == "a"',
        'not name : "A"',
        'name not in ("a")',
        'name not in~ ("A")',
        'not name like "a*"',
        'not name regex "a.*"',
        'not startsWith(name, "a")',
        'not wildcard(name, "a*")',
        'startsWith(name, "a") != true',
        'substring(name, 0) != "a"',
        'substring(name, 0) not in ("a", "c")',
        'not (name == "a" or name > "x")',
    ],
)
def test_a_negation_holds_where_the_value_is_missing(condition):
    assert rows_where(condition, NAMES) == [1, 2]


@pytest.mark.parametrize(
    "condition", ['name >= ""', 'name : "*"', "length(name) < 5", "name != null", "not name == null"]
)
def test_a_test_of_a_missing_value_does_not_hold(condition):
    assert rows_where(condition, NAMES) == [0, 1]


@pytest.mark.parametrize("condition", ["name == null", "null == name", "length(name) == null", "not name != null"])
def test_null_is_found_by_equality_alone(condition):
    assert rows_where(condition, NAMES) == [2]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("?user.id == null", [0, 1, 2]),
        ("?user.id != null", []),
        ('?user.id == "a"', []),
        ('?user.id != "a"', [0, 1, 2]),
        ('not ?user.id : "a"', [0, 1, 2]),
        ('?user.id : "a*" or name == "b"', [1]),
    ],
)
def test_an_optional_field_that_the_events_have_not_is_missing_in_all(condition, expected):
    assert rows_where(condition, NAMES) == expected


def test_a_field_that_the_events_have_not_is_an_error_or_null():
    with pytest.raises(QueryTypeError, match=r"no field 'nam'(.|\n)*name"):
        rows_where('nam == "a"', NAMES)
    assert rows_where('nam == "a"', NAMES, missing_fields="null") == []


def test_a_number_is_missing_as_a_text_is():
    numbers = [{"n": 1}, {"n": 2}, {"n": None}]
    assert rows_where("n != 1", numbers) == [1, 2]
    assert rows_where("not n > 1", numbers) == [0, 2]
    assert rows_where("n + 1 != 2", numbers) == [1, 2]
    assert rows_where("n / 0 == null", numbers) == [0, 1, 2]


# ------------------------------------------------------------------------------------------------ lists

LISTS = [{"args": ["a", "b"]}, {"args": ["b"]}, {"args": []}, {"args": None}, {"args": [None, "c"]}]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('args == "a"', [0]),
        ('args : ("A*", "c")', [0, 4]),
        ('args != "a"', [1, 2, 3, 4]),
        ('args == "b" and args != "a"', [1]),
        ('args == "a" and args == "b"', [0]),
        ("args == null", [2, 3]),
        ("args != null", [0, 1, 4]),
        ("length(args) == 1", [0, 1, 4]),
        ('not startsWith(args, "b")', [2, 3, 4]),
    ],
)
def test_a_test_of_a_list_holds_if_one_element_passes(condition, expected):
    assert rows_where(condition, LISTS) == expected


def test_a_value_of_elements_is_null_if_that_of_one_is():
    events = [{"args": ["ab", "b"]}, {"args": ["ab", "b", None]}, {"args": ["b"]}, {"args": []}, {"args": ["c"]}]
    assert rows_where('indexOf(args, "b") == null', events) == [3, 4]
    assert rows_where('indexOf(args, "a") == null', events) == [0, 1, 2, 3, 4]
    assert rows_where('indexOf(args, "b") != null', events) == [0, 1, 2]
    assert rows_where('indexOf(args, "a") != null', events) == []


def test_two_tests_of_a_list_may_be_passed_by_different_elements():
    assert rows_where("n > 1 and n < 3", [{"n": [0, 5]}, {"n": [0, 1]}, {"n": [2]}]) == [0, 2]


# ------------------------------------------------------------------------------------------------ texts

TEXTS = ["cmd.exe", "CMD.EXE", "c*d.exe", "C:\\cmd.exe", ""]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('t == "cmd.exe"', [0]),
        ('t : "cmd.exe"', [0, 1]),
        ('t : "c*d.exe"', [0, 1, 2, 3]),
        ('t == "c*d.exe"', [2]),
        ('t in ("c*d.exe", "x")', [2]),
        ('t in~ ("CMD.exe")', [0, 1]),
        ('t in~ ("C*D.exe")', [2]),
        ('t like "cmd.*"', [0]),
        ('t like~ "cmd.*"', [0, 1]),
        ('t like "c?d.exe"', [0, 2]),
        ('t : "?"', []),
        ('t : "*"', [0, 1, 2, 3, 4]),
        ('t : "cmd"', []),
        (r't : "c:\\*"', [3]),
        (r't : "c\\*d.exe"', []),
        ('t : """C:\\*"""', [3]),
        (r't regex "c.*\\.exe"', [0, 2]),
        (r't regex "md"', []),
        (r't regex~ "C[a-z]+\\.exe"', [0, 1]),
        (r't regex ("", "C:.+")', [3, 4]),
        ('t > "cmd"', [0]),
        (r't == "C:\u{5c}cmd\u{0000002E}exe"', [3]),
    ],
)
def test_tests_of_texts(condition, expected):
    assert rows_where(condition, [{"t": each} for each in TEXTS]) == expected


def test_strings_have_escapes_and_raw_strings_have_none():
    odd = [{"t": 'q"'}, {"t": "a\nb"}, {"t": "a\\nb"}, {"t": 'x"y'}]
    assert rows_where(r't == "q\""', odd) == [0]
    assert rows_where(r't == "a\nb"', odd) == [1]
    assert rows_where(r't == """a\nb"""', odd) == [2]
    assert rows_where('t == """x"y"""', odd) == [3]


def test_times_are_compared_with_texts():
    events = [{"@timestamp": second} for second in (0, 59, 60)]
    for written in ("1970-01-01T00:00:59Z", "1970-01-01T00:00:59"):
        assert rows_where(f'@timestamp > "{written}"', events) == [2]
        assert rows_where(f'"{written}" == @timestamp', events) == [1]


def test_whole_numbers_beside_texts_are_texts():
    events = [{"t": "0"}, {"t": "00"}, {"t": None}]
    assert rows_where("t == 0", events) == rows_where("t in (0, 1)", events) == [0]
    assert rows_where("t != 0", events) == [1, 2]


@pytest.mark.parametrize(
    ("condition", "said", "hint"),
    [
        ("name > 3", "expected a number, and 'name' is a string", '> "3"'),
        ('n : "1*"', "expected a text, and 'n' is an int64", "string(field) :"),
        ("name", "expected a condition, and 'name' is a string", "name == ..."),
        ("name : null", "':' compares with no null", "== null"),
        ('name == "a" or OR', "expected a field, found 'OR'", "lower case: or"),
        ('name == ("a", "b")', "found ','", "name in ("),
        ("name is null", "found 'is'", "== null"),
        ('name contains "x"', "found 'contains'", ': "*text*"'),
        ("n between 1 and 3", "found 'between'", ">= 1 and"),
        ("n == 1 && n == 2", "found '&'", "write and"),
    ],
)
def test_errors_speak_of_eql(condition, said, hint):
    with pytest.raises(QueryError) as raised:
        rows_where(condition, [{"name": "a", "n": 1}])
    assert said in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("process where name = 'a'", "'"),
        ('process where name = "a"', "=="),
        ('process where name =~ "a"', ":"),
        ('process WHERE name == "a"', "where"),
        ('process where name == "a" AND name == "b"', "and"),
        ('process where name == "a" | count', "head and tail"),
        ('process where name == ?"a"', '"'),
        ("process where 1 < n < 3", ""),
        ('process where name == "\\d"', "escape"),
        ("process where child of [process where true]", "not supported"),
        ("join [process where true] [process where true]", "join"),
        ("sequence [process where true]", "two steps"),
        ("sequence with maxspan=5 [process where true] [process where true]", "maxspan"),
        ("sequence with maxspan=0.5s [process where true] [process where true]", "maxspan"),
        ("sequence ![process where true] [process where true]", "maxspan"),
        ("sequence with maxspan=1s ![process where true] ![process where true]", "without !"),
        ("sequence [process where true] by n [process where true]", "key"),
        ("sequence [process where true] with runs=0", "runs"),
        ("sample [process where true] [process where true]", "share"),
        ('process where arrayContains(name, "a")', "arrayContains"),
        ("process where endsWith~ (name)", ""),
        ("process where length~(name) == 1", "~"),
    ],
)
def test_refused_by_name(text, said):
    with pytest.raises(QueryError) as caught:
        find(text, [{"name": "a", "n": 1}])
    assert said in str(caught.value)


def test_more_is_taken_than_in_elasticsearch():
    assert rows_where('name not : "A" and name not like "c*"', NAMES) == [1, 2]
    assert rows_where("a == b or a > b", [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1}]) == [0, 2]
    query = f"sequence with maxspan=5s by user {step('a')} {step('b')}"
    assert find(query, steps("ab", user="uu")) == [[0, 1]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("any where concat(a, b) == 1", "one list"),
        ("any where n == (n > 1)", "true or false"),
        ('any where string(a == "x") == "true"', "reads no list"),
        ('any where (a == "x" and n == 1) == null', "reads no list"),
        ("sequence with maxspan=1s by a ![any where true] [any where true]", "lists"),
        ("sequence [any where true] by a [any where true] by b until [any where true] by t", "lists"),
        ("sequence by n [any where true] by n [any where true] by t", "compared"),
        ("sequence with maxspan=1s ![any where true] by n [any where true] by m", "share"),
        ('any where t regex "~a"', "complements"),
        ('any where t regex "a&b"', "intersections"),
    ],
)
def test_less_is_taken_than_in_elasticsearch(text, said):
    with pytest.raises(QueryError, match=said):
        find(text, [{"a": ["x"], "b": ["y"], "n": 1, "m": 1, "t": "a"}])


def test_a_condition_compared_with_null_has_three_truths():
    values = (None, 1, 2)
    events = [{"a": a, "b": b} for a in values for b in values] + [{"a": 0, "b": 0}]
    conditions = {  # of SQL's logic
        "a > 1": lambda e: None if e["a"] is None else e["a"] > 1,
        "not (a > 1)": lambda e: None if e["a"] is None else e["a"] <= 1,
        "a > 1 and b > 1": lambda e: and_of(more(e["a"]), more(e["b"])),
        "a > 1 or b > 1": lambda e: or_of(more(e["a"]), more(e["b"])),
        "not (a > 1 and not b > 1)": lambda e: not_of(and_of(more(e["a"]), not_of(more(e["b"])))),
        "a == b": lambda e: None if None in e.values() else e["a"] == e["b"],
        "a in (1, 2)": lambda e: None if e["a"] is None else e["a"] in (1, 2),
        "a == null": lambda e: e["a"] is None,
        "not (10 / a > 4)": lambda e: None if e["a"] in (None, 0) else int(10 / e["a"]) <= 4,
    }
    for text, truth in conditions.items():
        nulls = [i for i, event in enumerate(events) if truth(event) is None]
        others = [i for i in range(len(events)) if i not in nulls]
        for comparison in (f"null == ({text})", f"({text}) == null", f"not ({text}) != null"):
            assert rows_where(comparison, events) == nulls, comparison
        assert rows_where(f"({text}) != null", events) == others, text


def more(value):
    return None if value is None else value > 1


def not_of(truth):
    return None if truth is None else not truth


def and_of(one, other):
    return False if False in (one, other) else None if None in (one, other) else True


def or_of(one, other):
    return not_of(and_of(not_of(one), not_of(other)))


def test_a_condition_of_a_list_compared_with_null():
    events = [{"t": ["a"]}, {"t": []}, {"t": None}, {"t": [None, "b"]}]
    assert rows_where('(t : "a*") == null', events) == [1, 2]
    assert rows_where('(t : "a*") != null', events) == [0, 3]


def test_a_condition_as_a_text():
    events = [{"n": 2, "name": "tru"}, {"n": 0, "name": "fals"}, {"n": None, "name": "x"}]
    assert rows_where('string(n > 1) : "TRUE"', events) == [0]
    assert rows_where('string(n > 1) == "false"', events) == [1]
    assert rows_where('string(n > 1) != "true"', events) == [1, 2]
    assert rows_where('string(n > 1) in ("true", "false")', events) == [0, 1]
    assert rows_where("string(n > 1) == null", events) == [2]
    assert rows_where('string(not n > 1) == "true"', events) == [1]
    assert rows_where('string(n != 2) == "true"', events) == [1]
    assert rows_where("string(not (n > 1 or name == null)) != null", events) == [0, 1]
    assert rows_where("string(n > 1) != null", events) == [0, 1]
    assert rows_where('concat(name, "e") == string(n > 1)', events) == [0, 1]
    assert rows_where("length(string(n > 1)) == 5", events) == [1]
    assert rows_where('string(true) == "true" and n == 2', events) == [0]


def test_null_stands_for_the_default_of_the_last_operand():
    events = [{"name": "17"}, {"name": "0x11"}, {"name": "1e"}]
    assert rows_where("number(name, null) == 17", events) == rows_where("number(name) == 17", events) == [0, 1]
    assert rows_where("number(name, ?base) == 17", events) == [0, 1]
    assert rows_where('substring(name, 1, null) == "7"', events) == [0]
    assert rows_where('indexOf(name, "x", null) == 1', events) == [1]
    assert rows_where("substring(name, null) == null", events) == [0, 1, 2]


def test_two_fields_that_no_event_has_are_equal():
    events = [{"n": 1}, {"n": None}]
    assert rows_where("?x == ?y", events) == [0, 1]
    assert rows_where("?x != ?y", events) == []
    assert rows_where("?x == n", events) == rows_where("n == ?x", events) == [1]
    assert rows_where("?x != n", events) == [0]
    assert rows_where("?x < ?y", events) == rows_where("?x == 1", events) == []
    assert rows_where("x == y", events, missing_fields="null") == []


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_a_timestamp_is_compared_with_milliseconds_since_1970(zone):
    base = 1_516_116_808_349
    table = table_of([{}] * 3)
    times = pa.array([base - 1, base, base + 1], pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms", zone))
    table = table.append_column("t", times)

    def rows(condition):
        query = cer_gpu.compile(f"any where {condition}", language="eql", schema=table.schema)
        return [row for (row,) in query.evaluate(table)["positions"].to_pylist()]

    assert rows(f"t == {base}") == rows(f"{base} == t") == rows(f"t : {base}") == rows(f"t in ({base}, 1)") == [1]
    assert rows(f"t > {base}") == [2]
    assert rows(f"t <= {base}") == [0, 1]
    assert rows(f"t != {base}") == [0, 2]
    assert rows("t > 0 and t < 99999999999999") == [0, 1, 2]


def test_an_error_underlines_its_place():
    with pytest.raises(QuerySyntaxError) as caught:
        cer_gpu.compile("process where name ==", language="eql")
    assert "^" in str(caught.value)


# ------------------------------------------------------------------------------------------------ functions

FUNCTION_RESULTS = [
    ('between(p, "System32\\\\", ".exe")', "cmd"),
    ('between(p, "system32\\\\", ".exe")', ""),
    ('between~(p, "system32\\\\", ".EXE")', "cmd"),
    ('between(p, "\\\\", "\\\\")', "Windows"),
    ('between(p, "\\\\", "\\\\", true)', "Windows\\System32"),
    ('between(p, "", "x")', "C:\\Windows\\System32\\cmd.exe"),
    ("substring(p, 3, 10)", "Windows"),
    ("substring(p, -4)", ".exe"),
    ("substring(p, -4, -1)", ".ex"),
    ("substring(p, 5, 2)", ""),
    ("substring(p, 99)", ""),
    ('concat(name, " ", n, " ", v, " ", flag)', "Cmd.exe 4 42.5 true"),
    ("CONCAT(name)", "Cmd.exe"),
    ("string(n)", "4"),
    ("string(w)", "2.0"),
    ("length(name)", 7),
    ('indexOf(name, "e")', 4),
    ('indexOf(name, "e", 5)', 6),
    ('indexOf(name, "e", 7)', None),
    ('indexOf(name, "e", 99)', None),
    ('indexOf(name, "E")', None),
    ('indexOf~(name, "E")', 4),
    ('indexOf(name, ".", -9)', 3),
    ('indexOf(name, "", 3)', 3),
    ("number(hex)", 31),
    ("number(hex, 16)", 31),
    ('number("1f", 16) + n', 35),
    ("number(name)", None),
    ('number("-42.5") + n', -38.5),
    ("add(n, 0.5)", 4.5),
    ("subtract(n, 6)", -2),
    ("multiply(n, -2)", -8),
    ("divide(n, 3)", 1),
    ("divide(-n, 3)", -1),
    ("4.0 / (n + 4)", 0.5),
    ("modulo(-n - 6, -6)", -4),
    ("modulo(n + 6, -6)", 4),
    ("n % 3", 1),
    ("n + 2 * 3", 10),
    ("(n + 2) * 3", 18),
    ("n - 2 - 1", 1),
]


@pytest.mark.parametrize(("value", "expected"), FUNCTION_RESULTS, ids=[value for value, _ in FUNCTION_RESULTS])
def test_values_of_functions(value, expected):
    event = {"p": "C:\\Windows\\System32\\cmd.exe", "name": "Cmd.exe", "n": 4, "v": 42.5, "w": 2.0, "flag": True}
    event |= {"hex": "0x1f", "none": None}
    written = "null" if expected is None else f'"""{expected}"""' if isinstance(expected, str) else expected
    assert rows_where(f"{value} == {written}", [event]) == [0]


FUNCTIONS_THAT_HOLD = [
    ('startsWith(name, "Cmd")', True),
    ('startsWith(name, "cmd")', False),
    ('startswith~(name, "cmd")', True),
    ('endsWith(name, ".exe")', True),
    ('endsWith("my.exe", ext)', True),
    ('stringContains~(name, "MD")', True),
    ('stringContains(name, "")', False),
    ('endsWith(name, "")', True),
    ('wildcard(name, "x*", "C?d*")', True),
    ('wildcard~(name, "cmd*")', True),
    ('cidrMatch(ip, "192.168.0.0/16", "10.6.48.157/8")', True),
    ('cidrMatch(ip, "192.168.0.0/16")', False),
    ('cidrMatch(ip6, "2001:db8::/32")', True),
]


@pytest.mark.parametrize(("test", "expected"), FUNCTIONS_THAT_HOLD, ids=[test for test, _ in FUNCTIONS_THAT_HOLD])
def test_functions_that_are_conditions(test, expected):
    event = {"name": "Cmd.exe", "ext": ".exe", "ip": "10.1.2.3", "ip6": "2001:db8::5"}
    assert rows_where(test, [event]) == ([0] if expected else [])
    assert rows_where(f"{test} == false", [event]) == ([] if expected else [0])


# ------------------------------------------------------------------------------------------------ sequences


def test_one_sequence_is_pending_for_each_step_and_the_newer_takes_its_place():
    assert find(f"sequence {step('a')} {step('b')}", steps("aabb")) == [[1, 2]]
    assert find(f"sequence {step('a')} {step('b')} {step('c')}", steps("abacbc")) == [[0, 1, 3], [2, 4, 5]]
    found = find(f"sequence {step('a')} {step('b')}", steps("aabb"), selection="all")
    assert sorted(found) == [[0, 2], [0, 3], [1, 2], [1, 3]]


def test_an_event_takes_no_two_steps_of_a_sequence_but_may_those_of_two():
    assert find("sequence [any where true] [any where true] [any where true]", steps("aaaa")) == [[0, 1, 2], [1, 2, 3]]


def test_each_key_has_a_sequence_of_its_own():
    events = steps("aabb", user=["u", "v", "v", "u"])
    assert find(f"sequence by user {step('a')} {step('b')}", events) == [[1, 2], [0, 3]]
    unlike = [{"name": "a", "user": "u"}, {"name": "b", "owner": "v"}, {"name": "b", "owner": "u"}]
    assert find(f"sequence {step('a')} by user {step('b')} by owner", unlike) == [[0, 2]]


def test_keys_are_compared_with_the_case_of_their_letters():
    assert find(f"sequence by user {step('a')} {step('b')}", steps("ab", user=["u", "U"])) == []


def test_a_missing_key_leaves_an_event_out_unless_it_is_optional():
    events = steps("ab", user=[None, None], host=["h", "h"])
    assert find(f"sequence by host, user {step('a')} {step('b')}", events) == []
    assert find(f"sequence by host, ?user {step('a')} {step('b')}", events) == [[0, 1]]
    assert find(f"sequence by host, ?nothing {step('a')} {step('b')}", events) == [[0, 1]]
    assert (
        find(f"sequence by host, ?user {step('a')} {step('b')}", steps("ab", user=[None, "u"], host=["h", "h"])) == []
    )


@pytest.mark.parametrize(("times", "expected"), [([0, 5], [[0, 1]]), ([0, 6], [])])
def test_maxspan_includes_its_end(times, expected):
    events = steps("ab", **{"@timestamp": times})
    assert find(f"sequence with maxspan=5s {step('a')} {step('b')}", events) == expected


def test_maxspan_is_from_the_first_event_to_the_last():
    events = steps("abc", **{"@timestamp": [0, 4, 8]})
    assert find(f"sequence with maxspan=5s {step('a')} {step('b')} {step('c')}", events) == []


def test_events_of_one_time_are_in_the_order_of_rows():
    events = steps("abab", **{"@timestamp": [0, 0, 0, 0]})
    assert find(f"sequence {step('a')} {step('b')}", events) == [[0, 1], [2, 3]]


def test_until_ends_what_is_pending_under_its_key():
    query = f"sequence by user {step('a')} {step('b')} until {step('c')}"
    assert find(query, steps("ab", user="uu")) == [[0, 1]]
    assert find(query, steps("abc", user="uuu")) == [[0, 1]]
    assert find(query, steps("acb", user="uuu")) == []
    assert find(query, steps("acb", user="uvu")) == [[0, 2]]
    own = f"sequence {step('a')} by user {step('b')} by user until {step('c')} by owner"
    events = [{"name": "a", "user": "u"}, {"name": "c", "user": "v", "owner": "u"}, {"name": "b", "user": "u"}]
    assert find(own, events) == []


def test_until_at_an_event_of_a_step_ends_what_that_event_began_and_not_what_it_completes():
    first = f"sequence {step('a')} {step('b')} until {step('a')}"
    assert find(first, steps("ab")) == []
    last = f"sequence {step('a')} {step('b')} until {step('b')}"
    assert find(last, steps("ab")) == [[0, 1]]
    middle = f"sequence {step('a')} {step('b')} {step('c')} until {step('b')}"
    assert find(middle, steps("abc")) == []


def test_until_of_another_category_ends_what_an_event_of_both_began():
    query = "sequence [file where true] [network where true] until [process where true]"
    events = [{"event.category": ["process", "file"]}, {"event.category": ["network"]}]
    assert find(query, events) == []
    assert find(query, [{"event.category": ["file"]}, *events[1:]]) == [[0, 1]]


def test_runs_are_that_many_steps():
    query = f"sequence by user {step('a')} by host with runs=3 {step('b')} by host"
    assert find(query, steps("aaab", user="uuuu", host="hhhh")) == [[0, 1, 2, 3]]
    assert find(query, steps("aab", user="uuu", host="hhh")) == []
    assert find(f"sequence {step('a')} with runs=2", steps("aaa")) == [[0, 1], [1, 2]]


def test_sequences_are_in_the_order_of_their_ends():
    events = steps("aabb", user=["u", "v", "v", "u"])
    assert [row[-1] for row in find(f"sequence by user {step('a')} {step('b')}", events)] == [2, 3]


def test_a_category_is_that_of_the_event_and_any_is_all():
    events = [{"event.category": "file"}, {"event.category": "process"}, {"event.category": None}]
    assert find("file where true", events) == [[0]]
    assert find('"process" where true', events) == [[1]]
    assert find("any where true", events) == [[0], [1], [2]]
    assert find('"File" where true', events) == []


# ------------------------------------------------------------------------------------------------ keys


def found_keys(text, events, *names):
    table = table_of(events)
    rows = cer_gpu.compile(text, language="eql").evaluate(table).to_pylist()
    return [(row["positions"], *(row[name] for name in names)) for row in rows]


def test_an_event_belongs_to_each_distinct_element_of_a_key_that_is_a_list():
    events = [{"tags": each} for each in (["a", "b"], ["c", "b", "b", "a"], [], None, ["c", None])]
    query = "sequence by tags [any where true] [any where true]"
    assert found_keys(query, events, "tags") == [([0, 1], "b"), ([0, 1], "a"), ([1, 4], "c")]
    assert found_keys(query.replace("tags", "?tags", 1), events, "tags") == [
        ([0, 1], "b"),
        ([0, 1], "a"),
        ([2, 3], None),
        ([1, 4], "c"),
    ]


def test_two_keys_that_are_lists_have_each_pair_of_their_elements():
    events = [{"a": [1, 2], "b": ["x"]}, {"a": [2, 1], "b": ["x", "y"]}, {"a": [1], "b": ["y"]}]
    query = "sequence by a, b [any where true] [any where true]"
    assert found_keys(query, events, "a", "b") == [([0, 1], 2, "x"), ([0, 1], 1, "x"), ([1, 2], 1, "y")]


def test_a_key_in_the_elements_of_a_list_of_structs():
    events = [{"users": [{"name": "a"}, {"name": "b"}]}, {"users": [{"name": "b"}, {"name": None}]}]
    query = "sequence by users.name [any where true] [any where true]"
    assert found_keys(query, events, "users.name") == [([0, 1], "b")]


def test_an_event_of_until_drops_what_is_pending_under_each_of_its_keys():
    query = f"sequence by k {step('a')} {step('b')} until {step('u')}"
    events = steps("aub", k=[["x", "y"], ["y"], ["x", "y"]])
    assert found_keys(query, events, "k") == [([0, 2], "x")]


def test_one_step_has_a_list_and_another_a_value():
    events = [{"name": "a", "k": 1, "ks": None}, {"name": "b", "k": 2, "ks": [3, 1]}, {"name": "b", "k": 1, "ks": []}]
    query = f"sequence {step('a')} by k {step('b')} by ks"
    assert found_keys(query, events, "k") == [([0, 1], 1)]


def test_an_event_that_must_be_missing_is_so_under_each_of_its_keys():
    events = steps("amb", k=[["x", "y"], ["y", "z"], ["x", "y"]])
    assert found_keys(f"sequence by k with maxspan=1h {step('a')} !{step('m')} {step('b')}", events, "k") == [
        ([0, 2], "x")
    ]
    at_the_end = f"sequence by k with maxspan=1h {step('a')} {step('b')} !{step('m')}"
    assert found_keys(at_the_end, [events[0], events[2], events[1]], "k") == [([0, 1], "x")]


def test_unlike_keys_with_a_question_mark_take_missing_for_missing():
    events = steps("abb", x=[None, 1, None], y=[1, 1, None])
    query = f"sequence {step('a')} by ?x {step('b')} by ?y"
    assert found_keys(query, events, "x") == [([0, 2], None)]
    assert find(query, events, selection="all") == [[0, 2]]
    assert find(f"sequence {step('a')} by x {step('b')} by ?y", events) == []
    swapped = f"sequence {step('a')} by ?y {step('b')} by ?x"
    assert found_keys(swapped, events, "y") == [([0, 1], 1)]
    assert find(swapped, events, selection="all") == [[0, 1]]


def test_keys_with_a_question_mark_that_no_event_has_are_missing_and_shown():
    events = steps("ab", x=[None, None])
    assert found_keys(f"sequence by ?q {step('a')} {step('b')}", events, "q") == [([0, 1], None)]
    assert found_keys(f"sequence {step('a')} by ?q {step('b')} by ?r", events, "q") == [([0, 1], None)]
    assert found_keys(f"sequence {step('a')} by ?q {step('b')} by ?x", events, "q") == [([0, 1], None)]
    assert find(f"sequence {step('a')} by ?q {step('b')} by ?name", events) == []


def test_answers_show_the_keys_of_the_first_step():
    events = steps("ab", user=["u", None], owner=[None, "u"])
    query = f"sequence {step('a')} by user {step('b')} by owner"
    assert found_keys(query, events, "user") == [([0, 1], "u")]
    assert cer_gpu.compile(query, language="eql").key_names == ("user",)


def test_keys_of_unlike_times_and_numbers_are_compared_by_value():
    times = pa.array([1_000, None], pa.timestamp("ms")), pa.array([None, 1], pa.timestamp("s"))
    table = table_of(steps("ab", n=[1, None], v=[None, 1.0])).append_column("t", times[0]).append_column("u", times[1])
    for keys in (("n", "v"), ("t", "u")):
        text = "sequence {} by {} {} by {}".format(step("a"), keys[0], step("b"), keys[1])
        assert cer_gpu.compile(text, language="eql").evaluate(table)["positions"].to_pylist() == [[0, 1]]


def test_results_of_keys_that_are_lists_name_their_events_in_each_output():
    events = steps("ab", k=[["x", "y"], ["y", "x"]])
    query = cer_gpu.compile(f"sequence by k {step('a')} {step('b')}", language="eql")
    table = table_of(events)
    assert [(row["end"], row["k"]) for row in query.evaluate(table, output="ends").to_pylist()] == [(1, "y"), (1, "x")]
    rows = query.evaluate(table, output="events").to_pylist()
    assert [[event["name"] for event in row["events"]] for row in rows] == [["a", "b"]] * 2
    assert query.count(table) == 2


def test_a_funnel_of_unlike_keys_needs_one_value_for_each_event():
    events = steps("abb", x=[1, None, None], y=[None, 2, 1], k=[[1], [1], [1]])
    table = table_of(events)
    query = cer_gpu.compile(f"sequence {step('a')} by x {step('b')} by y", language="eql")
    assert [row["positions"] for row in query.evaluate(table, output="funnel").to_pylist()] == [[0, 2]]
    with pytest.raises(OptionError, match="several keys"):
        cer_gpu.compile(f"sequence by k {step('a')} {step('b')}", language="eql").evaluate(table, output="funnel")


# ------------------------------------------------------------------------------------------------ missing events


def test_an_event_that_must_be_missing_between_two_steps():
    query = f"sequence with maxspan=1h {step('a')} !{step('m')} {step('b')}"
    assert find(query, steps("ab")) == [[0, 1]]
    assert find(query, steps("amb")) == []
    assert find(query, steps("mab")) == [[1, 2]]
    assert find(query, steps("amab")) == [[2, 3]]


def test_an_event_that_must_be_missing_has_the_keys_of_its_sequence():
    query = f"sequence by user with maxspan=1h {step('a')} !{step('m')} {step('b')}"
    assert find(query, steps("amb", user="uvu")) == [[0, 2]]
    assert find(query, steps("amb", user="uuu")) == []


@pytest.mark.parametrize(("time", "expected"), [(5, []), (6, [[0]])])
def test_an_event_that_must_be_missing_at_the_end_is_so_for_maxspan_from_the_first_step(time, expected):
    events = steps("amz", **{"@timestamp": [0, time, 99]})
    assert find(f"sequence with maxspan=5s {step('a')} !{step('m')}", events) == expected


def test_an_event_that_must_be_missing_at_the_end_is_so_at_the_end_of_the_events():
    assert find(f"sequence with maxspan=5s {step('a')} !{step('m')}", steps("a")) == [[0]]


@pytest.mark.parametrize(("time", "expected"), [(5, []), (6, [[1]])])
def test_an_event_that_must_be_missing_at_the_beginning_is_so_for_maxspan(time, expected):
    events = steps("ma", **{"@timestamp": [0, time]})
    assert find(f"sequence with maxspan=5s !{step('m')} {step('a')}", events) == expected


@pytest.mark.parametrize(("before", "after", "expected"), [(5, 5, []), (5, 6, [[1]]), (6, 5, [[1]]), (0, 10, [])])
def test_events_that_must_be_missing_at_both_ends_are_so_within_maxspan_of_each_other(before, after, expected):
    events = steps("mam", **{"@timestamp": [10 - before, 10, 10 + after]})
    assert find(f"sequence with maxspan=10s !{step('m')} {step('a')} !{step('m')}", events) == expected
    assert find(f"sequence with maxspan=10s !{step('m')} {step('a')} !{step('m')}", events[:2]) == [[1]]
    assert find(f"sequence with maxspan=10s !{step('m')} {step('a')} !{step('m')}", events[1:]) == [[0]]


def test_events_that_must_be_missing_at_both_ends_may_be_of_several_kinds():
    query = f"sequence with maxspan=4s !{step('m')} !{step('n')} {step('a')} {step('b')} !{step('o')} !{step('p')}"
    for letters, expected in {"mab": [[1, 2]], "abp": [[0, 1]], "mabp": [], "nabo": [], "mabm": [[1, 2]]}.items():
        assert find(query, steps(letters)) == expected, letters
    far = steps("mabo", **{"@timestamp": [0, 3, 4, 5]})
    assert find(query, far) == [[1, 2]]
    by_user = query.replace("sequence", "sequence by user")
    assert find(by_user, steps("mabo", user="vuuu")) == [[1, 2]]
    assert find(by_user, steps("mabo", user="uuuu")) == []


# ------------------------------------------------------------------------------------------------ samples and pipes


def test_a_sample_is_one_set_of_different_events_for_each_key_in_any_order():
    query = f"sample by host {step('a')} {step('b')}"
    assert find(query, steps("bab", host="hhh")) == [[0, 1]]
    assert find(query, steps("abab", host="hghg")) == []
    both = "sample by host [any where true] [any where true]"
    assert find(both, steps("aaa", host="hhg")) == [[0, 1]]
    assert find(both, steps("aaaa", host="hggh")) == [[1, 2], [0, 3]]  # in the order of keys


def test_a_sample_has_the_first_events_of_its_filters_in_turn():
    both = f"sample by host [any where true] {step('a')}"
    assert find(both, steps("ab", host="hh")) == [[0, 1]]  # the first filter leaves the second its only event
    assert find(both, steps("aba", host="hhh")) == [[0, 2]]  # once there is another, it need not


def test_samples_by_a_field_that_no_event_has():
    events = steps("ab")
    assert find(f"sample by ?x {step('a')} {step('b')}", events) == [[0, 1]]
    assert find(f"sample {step('a')} by ?x {step('b')} by ?y", events) == [[0, 1]]


def test_a_missing_key_leaves_an_event_out_of_samples_unless_it_is_optional():
    events = steps("ab", host=[None, None])
    assert find(f"sample by host {step('a')} {step('b')}", events) == []
    assert find(f"sample by ?host {step('a')} {step('b')}", events) == [[0, 1]]


def test_pipes_take_the_first_and_the_last():
    events = steps("aaaa")
    assert find("any where true | head 2", events) == [[0], [1]]
    assert find("any where true | tail 2", events) == [[2], [3]]
    assert find("any where true | head 3 | tail 1", events) == [[2]]
    assert find("any where true | tail 3 | head 1", events) == [[1]]
    assert find("sequence [any where true] [any where true] | tail 1", events) == [[2, 3]]


# ------------------------------------------------------------------------------------------------ Elastic Endpoint


def test_a_search_of_a_list_holds_if_one_element_satisfies_all_of_its_condition():
    stacks = [[{"symbol": "a", "n": 1}, {"symbol": "B", "n": 2}], [{"symbol": "b", "n": 1}], [], None]
    events = [{"stack": stack} for stack in stacks]
    both = '_arraysearch(stack, $entry, $entry.symbol : "b" and $entry.n == 2)'
    assert rows_where(both, events) == [0]
    assert rows_where(f"not {both}", events) == [1, 2, 3]
    assert rows_where('_arraysearch(stack, $e, $e.symbol != "a")', events) == [0, 1]


def test_a_step_reads_the_event_of_an_earlier_one_by_its_name():
    query = """sequence by host
        [process where event.action == "start"] as event0
        [process where stringcontains~(event0.process.command_line, process.name) and event0.pid != pid]"""
    events = [
        {"host": "h", "event.action": "start", "process.command_line": "run CMD.exe", "pid": 1},
        {"host": "h", "process.name": "x.exe", "pid": 2},
        {"host": "h", "process.name": "cmd.exe", "pid": 1},
        {"host": "h", "process.name": "cmd.exe", "pid": 3},
    ]
    assert find(query, events) == [[0, 3]]


def test_a_descendant_has_an_ancestor_that_satisfied_the_condition():
    ids = [("p1", "p0", "bad"), ("p2", "p1", "x"), ("p3", "p2", "x"), ("p4", "p0", "x")]
    events = [{"process.entity_id": a, "process.parent.entity_id": b, "process.name": n} for a, b, n in ids]
    assert find('process where descendant of [process where process.name == "bad"]', events) == [[1], [2]]


def test_a_category_may_be_one_of_several():
    events = [{"event.category": ["file", "process"]}, {"event.category": ["network"]}]
    assert find("process where true", events) == [[0]]
    assert find("sequence [process where true] [network where true]", events) == [[0, 1]]


# ------------------------------------------------------------------------------------------------ binding


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a or b and c", [3, 4, 5, 6, 7]),
        ("(a or b) and c", [3, 5, 7]),
        ("not a and b", [2, 3]),
        ("not (a and b)", [0, 1, 2, 3, 4, 5]),
        ("not a == b", [2, 3, 4, 5]),
    ],
)
def test_not_binds_tighter_than_and_and_and_tighter_than_or(condition, expected):
    events = [{"a": bool(i & 4), "b": bool(i & 2), "c": bool(i & 1)} for i in range(8)]
    assert rows_where(condition, events) == expected


def test_comments_and_quoted_names():
    query = 'any where // one line\n /* some\n lines */ `odd-name`.`x y` == "a"'
    assert find(query, [{"odd-name.x y": "a"}]) == [[0]]


def test_sequences_that_become_known_together_come_by_end_then_by_start():
    events = steps("aabbc", user=[1, 2, 2, 1, 0], **{"@timestamp": [0, 0, 1, 1, 9]})
    sequence = f"sequence by user with maxspan=5s {step('a')} {step('b')} !{step('d')}"
    assert find(sequence, events) == [[1, 2], [0, 3]]
    assert find(f"{sequence} | head 1", events) == [[1, 2]]
