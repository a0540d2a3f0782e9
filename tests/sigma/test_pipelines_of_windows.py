"""Mappings of pipelines of Windows: for each a rule, an event at which it fires, and one at which it must not."""

import re

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cer_gpu
import cer_gpu.sigma

pytest.importorskip("sigma")

DEFENDER = {"Channel": "Microsoft-Windows-Windows Defender/Operational", "EventID": "5007"}
AUDIT = {"Channel": "Security"}
DWORD, QWORD, TEXT, BINARY = (f"%%{n}" for n in (1876, 1883, 1873, 1875))
KEY = {"ObjectName": r"\REGISTRY\MACHINE\SOFTWARE\k", "ObjectValueName": "v", "OperationType": "%%1904"}


def loaded(source, tests, pipeline="windows", condition="s"):
    rule = (
        f"title: t\nlogsource: {{product: windows, {source}}}\ndetection:\n  s: {{{tests}}}\n  condition: {condition}\n"
    )
    return cer_gpu.sigma.load(rule, pipeline)


def rows_of(rules, events):
    names = dict.fromkeys(name for event in events for name in event)
    table = pa.table({name: pa.array([event.get(name) for event in events], pa.string()) for name in names})
    assert rules.errors == []
    return cer_gpu.compile(rules["t"], type_column=None).evaluate(table, output="ends")["end"].to_pylist()


def fires(source, tests, events, pipeline="windows", condition="s"):
    return rows_of(loaded(source, tests, pipeline, condition), events)


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("ThreatName", "Threat Name"),
        ("ProcessName", "Process Name"),
        ("SourceName", "Source Name"),
        ("NewValue", "New Value"),
        ("OldValue", "Old Value"),
        ("DetectionUser", "Detection User"),
        ("SeverityID", "Severity ID"),
        ("Feature_Name", "Feature Name"),
        ("Path", "Path"),
    ],
)
def test_fields_of_defender_have_blanks_or_none(field, column):
    events = [DEFENDER | {column: "bad.x"}, DEFENDER | {field: "bad.x"}, DEFENDER | {column: "good"}, DEFENDER]
    assert fires("service: windefend", f"'{field}|startswith': bad", events) == [0, 1]
    assert fires("service: windefend", f"'{field}|startswith': bad", events, condition="not s") == [2, 3]
    assert fires("service: windefend", f"{field}: null", events) == [3]


def test_fields_of_other_logs_have_no_blanks():
    events = [{"Channel": "System", "Threat Name": "x"}, {"Channel": "System", "ThreatName": "x"}]
    assert fires("service: system", "ThreatName: x", events) == [1]


def test_a_summary_asks_for_no_blanks_where_there_are_none():
    rules = loaded("service: windefend", "ThreatName: x")
    kinds = [
        pa.schema([(name, pa.string()) for name in ("Channel", *more)])
        for more in ((), ["Threat Name"], ["ThreatName"])
    ]
    assert [rules.missing(each) for each in kinds] == [{"ThreatName": 1}, {}, {}]
    assert rules.fields["t"] == ("Channel", "ThreatName", "Threat Name")


ONE = {(DWORD, "1"), (DWORD, "0x1"), (DWORD, "0x00000001"), ("REG_DWORD", "1")}
VALUES = [
    ("", "DWORD (0x00000001)", ONE),
    ("", "DWORD (0x0000000A)", {(DWORD, "10")}),
    ("contains", "0x00000001", ONE | {(QWORD, "1")}),  # QWORDs from 2^32 on are not told
    ("", "DWORD (0x0000000?)", ONE | {(DWORD, "0"), (DWORD, "10")}),
    ("", "DWORD (0x0000001?)", {(DWORD, "16"), (DWORD, "0x1f"), (DWORD, "31")}),
    ("endswith", "00000429)", {(DWORD, "1065")}),
    ("", "QWORD (0x00000000-0x00000001)", {(QWORD, "1")}),
    ("", "QWORD (0x00000001-0x00000000)", {(QWORD, "4294967296")}),
    ("", "Binary Data", {(BINARY, "0102")}),
    ("", "1", {(TEXT, "1")}),
    ("", "(Empty)", {(TEXT, "-"), (TEXT, "")}),
    ("startswith", "c:", {(TEXT, "C:\\x")}),
]
ALL_VALUES = [
    *((DWORD, each) for each in ("0", "1", "0x1", "0x00000001", "10", "16", "0x1f", "31", "32", "1065", "4294967295")),
    *((QWORD, each) for each in ("1", "4294967296")),
    *((TEXT, each) for each in ("1", "-", "", "C:\\x", "x1")),
    ("REG_DWORD", "1"),
    (BINARY, "0102"),
]


@pytest.mark.parametrize(("modifier", "value", "expected"), VALUES)
def test_data_of_event_4657_is_compared_as_sysmon_writes_it(modifier, value, expected):
    tests = f"'Details{'|' * bool(modifier)}{modifier}': '{value}'"
    events = [AUDIT | KEY | {"EventID": "4657", "NewValueType": t, "NewValue": v} for t, v in ALL_VALUES]
    passed = fires("category: registry_set", tests, events)
    assert {ALL_VALUES[row] for row in passed} == expected
    others = fires("category: registry_set", tests, events, condition="not s")
    assert sorted(passed + others) == list(range(len(events)))


def test_data_that_cannot_be_told_is_refused_by_name():
    ((_, error),) = loaded("category: registry_set", "Details|contains: '1'").errors
    assert "the pattern '*1*' matches the strings of too many numbers to be asked of the column NewValue" in str(error)
    assert loaded("category: registry_set", "Details|contains: '1'", "sysmon").errors == []


HEX = st.sampled_from("0123456789abcdef")
ENDS = st.tuples(st.text(HEX, max_size=8), st.sampled_from(["", "?", "*"]))


@given(ends=ENDS, numbers=st.lists(st.integers(0, 2**32 - 1), max_size=6), cut=st.integers(0, 9))
@example(ends=("0000000", "?"), numbers=[15, 16], cut=0)
def test_numbers_are_those_whose_texts_of_sysmon_match(ends, numbers, cut):
    digits, sign = ends
    pattern = f"DWORD (0x{digits}{sign})"[cut:]
    near = [int(digits.ljust(8, fill)[:8] or "0", 16) for fill in "0f"]
    numbers = [*numbers, *near, *(each + 1 for each in near)]
    events = [AUDIT | KEY | {"EventID": "4657", "NewValueType": DWORD, "NewValue": str(each)} for each in numbers]
    whole = "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in "*" * bool(cut) + pattern)
    expected = [row for row, each in enumerate(numbers) if re.fullmatch(whole, f"DWORD (0x{each:08x})")]
    tests = f"'Details{'|endswith' * bool(cut)}': '{pattern}'"
    rules = loaded("category: registry_set", tests, "windows_audit")
    if rules.errors:
        assert cut == 9  # of the pattern only digits are left: more numbers end so than can be listed
        assert len(digits) < 7
    else:
        assert rows_of(rules, events) == expected


PATHS = [
    ("startswith", r"HKLM\SOFTWARE\k", {0}),
    ("contains", r"HKLM\SOFTWARE\k", {0, 4}),
    ("contains", r"LM\SOFTWARE\k", {0, 4}),
    ("contains", r"HKU\S-1-5-21-1\k", {1}),
    ("startswith", r"HKU\\*\k", {1, 2, 4}),
    ("contains", r"HKCU\k", {1}),
    ("startswith", r"HKCU\k", {1}),
    ("contains", r"HKCR\k", {3}),
    ("contains", r"\SOFTWARE\k", {0, 4}),
    ("contains", r"HK??\SOFTWARE\k", {0, 4}),
    ("contains", r"\System\CurrentControlSet\k", {5}),
    ("endswith", r"System\CurrentControlSet\k\v", {5}),
    ("contains", r"CurrentControlSet\k", {5}),
    ("contains", r"\k\v", {0, 1, 2, 3, 4, 5}),
]
OBJECTS = [
    r"\REGISTRY\MACHINE\SOFTWARE\k",
    r"\REGISTRY\USER\S-1-5-21-1\k",
    r"\REGISTRY\USER\S-1-5-21-1\x\k",
    r"\REGISTRY\MACHINE\SOFTWARE\Classes\k",
    r"\REGISTRY\USER\S-1-5-21-1\HKLM\SOFTWARE\k",
    r"\REGISTRY\MACHINE\SYSTEM\ControlSet001\k",
]


@pytest.mark.parametrize(("modifier", "path", "expected"), PATHS)
def test_hives_are_found_wherever_a_pattern_begins(modifier, path, expected):
    events = [AUDIT | KEY | {"EventID": "4657", "ObjectName": name} for name in OBJECTS]
    assert set(fires("category: registry_set", f"'TargetObject|{modifier}': '{path}'", events)) == expected
    others = fires("category: registry_set", f"'TargetObject|{modifier}': '{path}'", events, condition="not s")
    assert set(others) == set(range(len(events))) - expected


ANN = {"SubjectUserSid": "S-1-5-21-1", "SubjectDomainName": "CORP", "SubjectUserName": "ann"}
SYSTEM = {"SubjectUserSid": "S-1-5-18", "SubjectDomainName": "CORP", "SubjectUserName": "PC$"}
NO_TARGET = {"TargetUserSid": "S-1-0-0", "TargetDomainName": "-", "TargetUserName": "-"}
AS_BOB = {"TargetUserSid": "S-1-0-0", "TargetDomainName": "CORP", "TargetUserName": "bob"}
AS_SERVICE = {"TargetUserSid": "S-1-5-20", "TargetDomainName": "CORP", "TargetUserName": "PC$"}
STARTS = [
    AUDIT | {"EventID": "4688"} | each
    for each in (ANN | NO_TARGET, ANN, ANN | AS_BOB, SYSTEM | NO_TARGET, SYSTEM | AS_BOB, SYSTEM | AS_SERVICE)
]


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ("User: 'CORP\\ann'", [0, 1]),
        ("User|endswith: '\\bob'", [2, 4]),
        ("User|contains: [AUTHORI, AUTORI]", [3, 5]),
        ("User|endswith: '\\NETWORK SERVICE'", [5]),
        ("ParentUser: 'CORP\\ann'", [0, 1, 2]),
        ("ParentUser|contains: AUTHORI", [3, 4, 5]),
        ("User|fieldref: ParentUser", [0, 1, 3]),
        ("User: null", []),
    ],
)
def test_users_of_event_4688(tests, expected):
    assert fires("category: process_creation", tests, STARTS, "windows_audit") == expected
    others = fires("category: process_creation", tests, STARTS, "windows_audit", condition="not s")
    assert sorted(expected + others) == list(range(len(STARTS)))
