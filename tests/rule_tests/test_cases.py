"""Files of cases: their keys, and the errors in them, with file and line."""

import pytest

from cer_gpu.errors import OptionError
from cer_gpu.rule_tests import read_cases
from cer_gpu.rule_tests.cases import case_files

pytest.importorskip("yaml")
HEAD = "rule: a.ceql\nevents: [{type: A}]\n"
WRONG = {
    "": "1: expected cases of a rule test, found nothing",
    "- 1": "1: expected a file of cases: keys with values, got a list",
    "cases: [": "1: is not YAML: expected the node content, but found '<stream end>'",
    HEAD + "expects: none": "3: unknown key 'expects' of a file of cases\nhint: did you mean 'expect'?",
    HEAD + "cases: []": "3: expected cases: a list, got none",
    HEAD + "expect: none\ncases: [{expect: none}]": "3: with 'cases', 'expect' is a key of each case",
    HEAD: "1: a case needs 'expect', and this one does not have it",
    "rule: a.ceql\nexpect: none": "1: a case needs 'events', and this one does not have it",
    HEAD
    + "expect: nothing": "3: expected none, or count, at_least, positions or rows, got 'nothing'\nhint: none: none",
    HEAD + "expect:": "3: expected none, or count, at_least, positions or rows, got nothing",
    HEAD + "expect: {cuont: 1}": "3: unknown key 'cuont' of expect\nhint: did you mean 'count'?",
    HEAD + "expect: {count: -1}": "3: expected a number of matches: a whole number, 0 or more, got -1",
    HEAD + "expect: {count: true}": "3: expected a number of matches: a whole number, 0 or more, got True",
    HEAD + "expect: {at_least: some}": "3: expected a number of matches: a whole number, 0 or more, got 'some'",
    HEAD + "expect:\n  positions: [0, 1]": "4: expected the positions of a match, such as [0, 3]: a list, got 0",
    HEAD + "expect:\n  positions: [[a]]": "4: expected the number of a row, 0 or more, got 'a'",
    HEAD + "expect:\n  rows: [1]": "4: expected a row: keys with values, got 1",
    HEAD + "expect: none\noptions: {sorted: 1}": "4: unknown key 'sorted' of options\nhint: did you mean 'sort'?",
    HEAD + "expect: none\ntypes: {x: int33}": "4: expected an Arrow type, such as int32 or string, got 'int33'",
    "rule: []\nevents: [{type: A}]\nexpect: none": "1: expected rules, got an empty list",
    "events: []\nexpect: none": "1: expected at least one event",
    "events:\n- 1\nexpect: none": "2: expected an event: keys with values, got 1",
    "events:\n- {a: 1, a: 2}\nexpect: none": "2: an event has the key 'a' twice, first in line 2",
    "events:\n- {1: 2}\nexpect: none": "2: expected a string as a key of an event, got 1",
    "events:\n- {a: 2024-02-31}\nexpect: none": "2: day is out of range for month",
}


@pytest.mark.parametrize("text", WRONG)
def test_errors_name_the_file_and_the_line(tmp_path, text):
    path = tmp_path / "a.test.yml"
    path.write_text(text)
    cases, (error,) = read_cases(path)
    assert cases == []
    told = WRONG[text].removesuffix("\nhint: none: none")
    assert str(error).startswith(f"{path}:{told}")


def test_what_stands_above_the_cases_holds_for_all(tmp_path):
    path = tmp_path / "a.test.yml"
    path.write_text(
        "rule: [a, b]\nevents: e.csv\noptions: {time_column: ts, sort: true}\ncases:\n"
        "- {expect: none}\n- {name: two, rule: c, options: {sort: false}, expect: {count: 2, rows: [{n: 1}]}}\n"
    )
    (one, two), errors = read_cases(path)
    assert errors == []
    assert (one.name, one.line, one.rules, one.expected) == ("case 1", 5, ("a", "b"), {"count": 0})
    assert one.options == {"time_column": "ts", "sort": True}
    assert (two.name, two.rules, two.expected) == ("two", ("c",), {"count": 2, "rows": [{"n": 1}]})
    assert two.options == {"time_column": "ts", "sort": False}


def test_one_wrong_case_leaves_the_others(tmp_path):
    path = tmp_path / "a.test.yml"
    path.write_text("events: e.csv\ncases:\n- {expect: none}\n- {expect: 3}\n- {expect: none}\n")
    cases, errors = read_cases(path)
    assert [case.line for case in cases] == [3, 5]
    assert len(errors) == 1


def test_anchors_and_merges_of_yaml(tmp_path):
    path = tmp_path / "a.test.yml"
    path.write_text("events: [&a {type: A, x: 1}, {<<: *a, x: 2}, *a]\nexpect: none\n")
    (case,), _ = read_cases(path)
    rows = case.open_events(None).to_pylist()
    assert rows == [{"type": "A", "x": 1}, {"type": "A", "x": 2}, {"type": "A", "x": 1}]


def test_the_types_of_inline_events(tmp_path):
    path = tmp_path / "a.test.yml"
    path.write_text(
        "events:\n- {ts: '2024-01-01T00:00:00Z', t: '2024-01-01', n: 1, x: 1, none: }\n"
        "- {ts: 2024-01-01T00:00:01, x: 0.5}\n"
        "types: {n: int16}\nexpect: none\n"
    )
    (case,), _ = read_cases(path)
    table = case.open_events("ts")
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {"ts": "timestamp[us, tz=UTC]", "t": "string", "n": "int16", "x": "double"}


def test_a_column_of_several_types_is_an_error(tmp_path):
    path = tmp_path / "a.test.yml"
    path.write_text("events:\n- {x: 1}\n- {x: a}\nexpect: none\n")
    (case,), _ = read_cases(path)
    with pytest.raises(OptionError, match=r"a.test.yml:2: expected values of one type in the column 'x'.*int, str"):
        case.open_events(None)


def test_files_of_cases(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("b.test.yml", "in/a.test.yaml", "c.yml", "test.yml"):
        (tmp_path / name).write_text("x")
    assert [path.name for path in case_files(tmp_path)] == ["b.test.yml", "a.test.yaml"]
    assert case_files(tmp_path / "b.test.yml") == [tmp_path / "b.test.yml"]
    with pytest.raises(OptionError, match=r"expected a folder with rule tests .*, found nothing"):
        case_files(tmp_path / "nowhere")
    (tmp_path / "b.test.yml").unlink()
    (tmp_path / "in" / "a.test.yaml").unlink()
    with pytest.raises(OptionError, match="found none"):
        case_files(tmp_path)
