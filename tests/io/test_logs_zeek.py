r"""Logs of Zeek: the examples of its documentation, and random records, written as Zeek's own writer escapes them."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cer_gpu.io.logs.zeek import BEFORE_THE_HEADER, NOT_OF_ITS_TYPE, OTHER_NUMBER, TYPES_DIFFER, recognises, records
from tests.io.log_streams import WHOLE, cuts, read_records

START = datetime(1970, 1, 1, tzinfo=UTC)


def header(path, columns, separator="\t", set_separator=",", empty="(empty)", unset="-"):
    """Return the header of a log whose columns are pairs of a name and a type."""
    escaped = "".join(f"\\x{ord(sign):02x}" for sign in separator)
    rows = [
        ["#set_separator", set_separator],
        ["#empty_field", empty],
        ["#unset_field", unset],
        ["#path", path],
        ["#open", "2011-03-18-19-06-08"],
        ["#fields", *(name for name, _ in columns)],
        ["#types", *(kind for _, kind in columns)],
    ]
    return "\n".join([f"#separator {escaped}", *map(separator.join, rows)]) + "\n"


def read(text):
    return read_records(records, text.encode(), WHOLE)


def test_a_log_of_connections():
    columns = (
        "ts:time uid:string id.orig_h:addr id.orig_p:port proto:enum duration:interval orig_bytes:count local:bool"
    )
    columns = [each.split(":") for each in f"{columns} delta:int ratio:double parents:set[string]".split()]
    log = header("conn", columns) + (
        "1300475167.096535\tCHhAvV\t2001:db8::1\t5353\tudp\t0.000250\t73\tT\t-4\t1.5\t(empty)\n"
        "1300475168.5\t-\t-\t-\t-\t-\t-\tF\t-\t-\ta,b\n"
        "#close\t2011-03-18-19-06-13\n"
    )
    found, reasons, _ = read(log)
    assert reasons == {}
    assert found == [
        {
            "_path": "conn",
            "ts": datetime(2011, 3, 18, 19, 6, 7, 96_535, UTC),
            "uid": "CHhAvV",
            "id.orig_h": "2001:db8::1",
            "id.orig_p": 5353,
            "proto": "udp",
            "duration": 0.00025,
            "orig_bytes": 73,
            "local": True,
            "delta": -4,
            "ratio": 1.5,
            "parents": [],
        },
        {"_path": "conn", **dict.fromkeys(name for name, _ in columns)}
        | {"ts": datetime(2011, 3, 18, 19, 6, 8, 500_000, UTC), "local": False, "parents": ["a", "b"]},
    ]


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("string", r"\\\\10.0.0.12\\IPC$", r"\\10.0.0.12\IPC$"),
        ("string", r"\x5c\x5chost", r"\\host"),
        ("string", r"a\x09b\xc3\xa9", "a\tbé"),
        ("string", r"\xff\\xff", r"\xff\xff"),
        ("string", r"C:\temp", r"C:\temp"),
        ("string", r"\x2d", "-"),
        ("string", r"\x28empty)", "(empty)"),
        ("string", "(empty)", ""),
        ("string", "", ""),
        ("vector[string]", r"a\x2cb,-,\x2d,(empty)", ["a,b", None, "-", ""]),
        ("vector[interval]", "1.000000,2.5", ["1.000000", "2.5"]),
        ("set[addr]", "-", None),
        ("time", "-0.250000", START - timedelta(milliseconds=250)),
        ("time", "1700000000", START + timedelta(seconds=1_700_000_000)),
        ("time", "1700000000.9999999", START + timedelta(seconds=1_700_000_000, microseconds=999_999)),
        ("count", "18446744073709551615", 2**64 - 1),
    ],
)
def test_values_of_each_type(kind, text, wanted):
    found, reasons, _ = read(header("x", [("a", kind), ("b", "bool")]) + f"{text}\tT\n")
    assert reasons == {}
    assert found == [{"_path": "x", "a": wanted, "b": True}]


def test_logs_one_after_the_other_and_other_separators():
    log = header("dns", [("query", "string")]) + "a\n#close\tx\n"
    log += header("http", [("uri", "string"), ("tags", "set[enum]")], "|", ";", "EMPTY", "NA") + "-|x;NA\nNA|EMPTY\n"
    assert read(log) == (
        [
            {"_path": "dns", "query": "a"},
            {"_path": "http", "uri": "-", "tags": ["x", None]},
            {"_path": "http", "uri": None, "tags": []},
        ],
        {},
        {},
    )


def test_a_header_without_types_has_strings():
    assert read("#separator \\x09\n#fields\ta\tb\n1\tx\n")[0] == [{"_path": None, "a": "1", "b": "x"}]


def test_lines_that_are_not_as_their_header_says_are_counted():
    log = (
        "1\t2\n"
        + header("x", [("a", "count"), ("b", "time")])
        + "1\t2.0\n1\n\nx\t1.0\n1\t1e9\n1\t999999999999999\n99999999999999999999\t1.0\n1\t1.0\t\n"
        + "#types\tcount\n1\t1.0\n1\n"
        + header("y", [("c", "bool"), ("d", "double")])
        + "T\t1.0\ntrue\t1.0\nT\tone\n"
    )
    found, reasons, first = read(log)
    assert found == [
        {"_path": "x", "a": 1, "b": START + timedelta(seconds=2)},
        {"_path": "y", "c": True, "d": 1.0},
    ]
    assert reasons == {BEFORE_THE_HEADER: 1, OTHER_NUMBER: 2, NOT_OF_ITS_TYPE: 6, TYPES_DIFFER: 2}
    assert first == {
        BEFORE_THE_HEADER: "line 1",
        OTHER_NUMBER: "line 11",
        NOT_OF_ITS_TYPE: "line 13",
        TYPES_DIFFER: "line 19",
    }


def test_the_beginning_tells_the_format():
    assert recognises(b"#separator \\x09\n#set_separator\t,\n")
    assert not any(map(recognises, [b"", b"#fields\ta", b'{"_path": "conn"}', b"ts,uid\n#separator \\x09"]))


def escaped(text, separators, reserved, is_utf8):
    """Return a text as Zeek writes it: bytes by number, and the first sign of what would be taken for no value."""
    if text == "":
        return reserved[0]
    if text in reserved:
        return f"\\x{ord(text[0]):02x}{text[1:]}"
    signs = []
    for sign in text:
        if sign == "\\":
            signs.append("\\\\")
        elif sign in separators or not sign.isprintable() or (ord(sign) > 126 and not is_utf8):
            signs += [f"\\x{byte:02x}" for byte in sign.encode()]
        else:
            signs.append(sign)
    made = "".join(signs)
    return f"\\x23{made[1:]}" if made.startswith("#") else made


_texts = st.sampled_from(["-", "(empty)", "", "NA", r"\x2d", "#a"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
)
_numbers = st.integers(-(2**63), 2**63 - 1)
_floats = st.floats(allow_nan=False, allow_infinity=False)
_micros = st.integers(-(2**33) * 10**6, 2**33 * 10**6)


def written_time(micros):
    return f"{'-' if micros < 0 else ''}{abs(micros) // 10**6}.{abs(micros) % 10**6:06d}"


@st.composite
def written_logs(draw):
    separator, between = draw(st.sampled_from([("\t", ","), ("|", ";"), (" ", ",")]))
    empty, unset = draw(st.sampled_from([("(empty)", "-"), ("EMPTY", "NA")]))
    kinds = draw(st.lists(st.sampled_from([*_WAYS, "string", "set[string]", "vector[string]"]), min_size=2, max_size=5))
    names = [f"{'id.' * draw(st.booleans())}c{idx}" for idx in range(len(kinds))]
    path = draw(st.sampled_from(["conn", "dns"]))
    is_utf8 = draw(st.booleans())

    def text_of(value):
        return escaped(value, separator + between, (empty, unset), is_utf8)

    log, wanted = header(path, list(zip(names, kinds, strict=True)), separator, between, empty, unset), []
    for _ in range(draw(st.integers(0, 4))):
        record, parts = {"_path": path}, []
        for name, kind in zip(names, kinds, strict=True):
            values, write, meant = _WAYS.get(kind, (_texts, text_of, lambda text: text))
            if "[" in kind:
                values = st.lists(st.none() | _texts, max_size=3)
            value = draw(st.none() | values)
            record[name] = value if value is None or "[" in kind else meant(value)
            if isinstance(value, list):
                parts.append(between.join(unset if each is None else text_of(each) for each in value) or empty)
            else:
                parts.append(unset if value is None else write(value))
            if value == [None]:  # is written as if it were none
                record[name] = None
            if value == [""]:
                record[name] = []
        log += separator.join(parts) + "\n"
        wanted.append(record)
    return log + f"#close{separator}x\n", wanted


_WAYS = {
    "time": (_micros, written_time, lambda micros: START + timedelta(microseconds=micros)),
    "count": (_numbers, str, int),
    "port": (st.integers(0, 65535), str, int),
    "double": (_floats, repr, float),
    "interval": (_floats, repr, float),
    "bool": (st.booleans(), lambda value: "T" if value else "F", bool),
}


@given(st.lists(written_logs(), min_size=1, max_size=2), cuts)
def test_what_is_written_is_read(logs, sizes):
    content = "".join(log for log, _ in logs).encode()
    assert read_records(records, content, sizes) == ([record for _, wanted in logs for record in wanted], {}, {})


_lines = st.sampled_from([header("x", [("a", "count"), ("b", "time")]), header("y", [("a", "set[string]")], "|", ";")])
_signs = st.sampled_from(
    ["\n", "\t", " ", "\r", "|", ";", ",", "-", r"\x", r"\x2", r"\\", "1", "1.5"]
) | st.sampled_from(["#fields", "#types", "#separator ", "#set_separator"])


@given(st.lists(_lines.map(str.encode) | _signs.map(str.encode) | st.binary(max_size=3)).map(b"".join), cuts)
def test_any_bytes_give_records_or_are_counted(content, sizes):
    whole = read_records(records, content, WHOLE)
    assert repr(read_records(records, content, sizes)) == repr(whole)
    lines = [line for line in re.split(rb"\r?\n", content) if line and not line.startswith(b"#")]
    assert len(whole[0]) + sum(whole[1].values()) == len(lines)
