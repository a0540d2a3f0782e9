"""Logs of Sysmon for Linux: events as it writes them to syslog, and lines that only look like them."""

from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cer_gpu.io.logs.sysmon_linux import CUT_SHORT, NOT_AS_WRITTEN, WITHOUT_EVENT, recognises, records
from tests.io.log_streams import WHOLE, cuts, read_records

QUOTE = {'"': "&quot;"}
GUID = "{ff032593-a8d3-4f13-b0d6-01fc615a0f97}"


def written(number=1, time="2021-10-16T00:41:27.577774000Z", data=(), record=765):
    """Return an event as Sysmon writes it; values are quoted by another program than the reader."""
    items = "".join(f'<Data Name="{escape(name, QUOTE)}">{escape(value)}</Data>' for name, value in data)
    return (
        f'<Event><System><Provider Name="Linux-Sysmon" Guid="{GUID}"/><EventID>{number}</EventID><Version>5</Version>'
        "<Level>4</Level><Task>1</Task><Opcode>0</Opcode><Keywords>0x8000000000000000</Keywords>"
        f'<TimeCreated SystemTime="{time}"/><EventRecordID>{record}</EventRecordID><Correlation/>'
        '<Execution ProcessID="3465" ThreadID="3466"/><Channel>Linux-Sysmon/Operational</Channel>'
        f'<Computer>web1</Computer><Security UserId="0"/></System><EventData>{items}</EventData></Event>'
    )


SYSTEM = {
    "Provider_Name": "Linux-Sysmon",
    "Provider_Guid": GUID,
    "EventID": 1,
    "Version": 5,
    "Level": 4,
    "Task": 1,
    "Opcode": 0,
    "Keywords": "0x8000000000000000",
    "TimeCreated": datetime(2021, 10, 16, 0, 41, 27, 577_774, UTC),
    "EventRecordID": 765,
    "Execution_ProcessID": 3465,
    "Execution_ThreadID": 3466,
    "Channel": "Linux-Sysmon/Operational",
    "Computer": "web1",
    "UserID": "0",
}
PREFIXES = [
    "",
    "Nov 27 12:00:00 web1 sysmon: ",
    "<13>1 2021-10-16T00:41:27.577774+02:00 web1 sysmon 3465 - - ",
    "2021-10-16T00:41:27.577774+02:00 web1 sysmon[3465]: ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_event_after_any_beginning_of_syslog(prefix):
    event = written(data=[("RuleName", "-"), ("Image", "/bin/ls"), ("CommandLine", 'a && b < "c"'), ("User", "")])
    line = (prefix + event + "\n").encode()
    data = {"RuleName": "-", "Image": "/bin/ls", "CommandLine": 'a && b < "c"', "User": ""}
    assert read_records(records, line, WHOLE) == ([SYSTEM | data], {}, {})
    assert recognises(line)


def test_references_to_characters_and_columns_of_two_parts():
    event = written(data=[("Version", "1.0"), ("q", "x")]).replace(">x<", ">&#233;&#x1F600;&quot;&apos;&gt;<")
    (record,), reasons, _ = read_records(records, event.encode(), WHOLE)
    assert reasons == {}
    assert (record["Version"], record["EventData_Version"], record["q"]) == (5, "1.0", "é😀\"'>")


def test_an_event_without_data_and_one_in_another_zone():
    log = written(time="2021-10-16T02:41:27.5+02:00").replace("<EventData></EventData>", "<EventData/>")
    (record,), reasons, _ = read_records(records, log.encode(), WHOLE)
    assert reasons == {}
    assert record == SYSTEM | {"TimeCreated": datetime(2021, 10, 16, 0, 41, 27, 500_000, UTC)}


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
WHOLE_EVENT = written(data=[("Image", "/bin/ls")])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Nov 27 12:00:00 web1 sshd[1]: Accepted publickey for ann", WITHOUT_EVENT),
        (WHOLE_EVENT[:-1], CUT_SHORT),
        (WHOLE_EVENT[:100], CUT_SHORT),
        (WHOLE_EVENT.replace("<System>", BOMB + "<System>"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("/bin/ls", "&b;"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("/bin/ls", "a & b"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("/bin/ls", "&#0;"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("/bin/ls", "&#xD800;"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("/bin/ls", "&#x110000;"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("/bin/ls", "<b>x</b>"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("/bin/ls", "<![CDATA[x]]>"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("<EventID>1<", "<EventID>one<"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("<EventID>1</EventID>", ""), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("765", str(2**63)), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("765", "9" * 5000), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("2021-10-16T00:41:27.577774000Z", "yesterday"), NOT_AS_WRITTEN),
        (WHOLE_EVENT.replace("2021-10-16T00:41:27.577774000Z", "0001-01-01T00:00:00+05:00"), NOT_AS_WRITTEN),
    ],
)
def test_a_line_without_an_event_as_sysmon_writes_it_is_counted(line, reason):
    log = f"\n{line}\n{WHOLE_EVENT}\n".encode()
    found, reasons, first = read_records(records, log, WHOLE)
    assert [record["Image"] for record in found] == ["/bin/ls"]
    assert (reasons, first) == ({reason: 1}, {reason: "line 2"})


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"Nov 27 12:00:00 web1 sshd[1]: Accepted",
        b'<Event><System><Provider Name="Microsoft-Windows-Sysmon"/>',
        b'{"message": "<Event><System><Provider Name=\\"Linux-Sysmon\\""}',
    ],
)
def test_other_beginnings_are_not_of_this_format(head):
    assert not recognises(head)


_names = st.text("abcXYZ_é&\"'>", min_size=1, max_size=4)
_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=10)
_times = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PREFIXES),
            st.integers(0, 2**63 - 1),
            _times,
            st.integers(0, 999),
            st.dictionaries(_names, _values, max_size=4),
        ),
        max_size=4,
    ),
    cuts,
)
def test_what_is_written_is_read(events, sizes):
    log, wanted = "", []
    for prefix, number, time, nanos, data in events:
        text = f"{time.isoformat(timespec='microseconds')}{nanos:03d}Z"
        log += prefix + written(number, text, data.items(), number) + "\n"
        changed = {"EventID": number, "EventRecordID": number, "TimeCreated": time.replace(tzinfo=UTC)}
        wanted.append(SYSTEM | changed | data)
    assert read_records(records, log.encode(), sizes) == (wanted, {}, {})


_parts = st.sampled_from([part for part in WHOLE_EVENT.replace("<", "\0<").split("\0") if part])
_signs = st.sampled_from(["\n", "<", ">", "&", "&lt;", "&#65;", '"', "<Event>", "</Event>", "<!ENTITY a 'b'>"])


@given(st.lists(_parts.map(str.encode) | _signs.map(str.encode) | st.binary(max_size=3)).map(b"".join), cuts)
def test_any_bytes_give_records_or_are_counted(content, sizes):
    whole = read_records(records, content, WHOLE)
    assert read_records(records, content, sizes) == whole
    found, reasons, _ = whole
    n_lines = sum(bool(line.strip()) for line in content.replace(b"\r\n", b"\n").split(b"\n"))
    assert len(found) + sum(reasons.values()) <= n_lines
    recognises(content)


@given(st.integers(0, len(WHOLE_EVENT) - 1), st.sampled_from("<>&\"'/ x"))
def test_a_changed_sign_never_raises(place, sign):
    changed = WHOLE_EVENT[:place] + sign + WHOLE_EVENT[place + 1 :]
    found, reasons, _ = read_records(records, changed.encode(), WHOLE)
    assert len(found) + sum(reasons.values()) == 1


def test_times_have_no_rounding():
    time = datetime(2021, 10, 16, 0, 41, 27, 999_999, UTC)
    (record,), _, _ = read_records(records, written(time="2021-10-16T00:41:27.999999999Z").encode(), WHOLE)
    assert record["TimeCreated"] == time < time + timedelta(microseconds=1)
