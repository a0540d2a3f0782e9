"""Event logs of Windows: their fields as columns, damaged ones, the recorded ones of SigmaHQ, and no package."""

import datetime as dt
import io
import json
import sys
import zipfile

import pyarrow as pa
import pytest
from evtx_writer import event_xml, evtx_bytes
from outside_data import FOLDER

import cer_gpu
from cer_gpu.errors import EventsError, OptionError
from cer_gpu.io.logs import evtx
from cer_gpu.io.logs.records import Skipped
from cer_gpu.io.sources import open_events

pytest.importorskip("evtx")
CASES = FOLDER / "sigma_regression.zip"
SYSTEM = (
    "<Provider Name='Sysmon' Guid='g'/><EventID Qualifiers='3'>7</EventID><Version>5</Version><Level>4</Level>"
    "<Task>1</Task><Opcode>0</Opcode><Keywords>0x80</Keywords><EventRecordID>12</EventRecordID>"
    "<Correlation ActivityID='c'/><Execution ProcessID='40' ThreadID='41'/><Channel>Security</Channel>"
    "<Computer>dc</Computer><Security UserID='S-1'/>"
)
OF_SYSTEM = {
    "TimeCreated": dt.datetime(2024, 3, 1, 5, 0, 0, 123456, dt.UTC),
    "EventID": 7,
    "Channel": "Security",
    "Computer": "dc",
    "Keywords": "0x80",
    "EventRecordID": 12,
    "Level": 4,
    "Task": 1,
    "Opcode": 0,
    "Version": 5,
    "Provider_Name": "Sysmon",
    "Provider_Guid": "g",
    "Execution_ProcessID": 40,
    "Execution_ThreadID": 41,
    "UserID": "S-1",
    "Correlation_ActivityID": "c",
}


def rows(path):
    source = open_events(path)
    return pa.Table.from_batches(list(source.batches(source.schema.names)), source.schema).to_pylist()


def told(row):
    return {name: value for name, value in row.items() if value is not None}


def numbered(n, *, channel="C"):
    return [
        event_xml(
            f"<EventID>{i}</EventID><Channel>{channel}</Channel>", f"<EventData><Data Name='N'>{i}</Data></EventData>"
        )
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        ("", {}),
        ("<EventData/>", {}),
        ("<EventData><Data Name='Image'>a.exe</Data><Data Name='Empty'/></EventData>", {"Image": "a.exe", "Empty": ""}),
        ("<EventData><Data>u</Data><Data/><Data>w</Data></EventData>", {"Data": ["u", "", "w"]}),
        ("<EventData><Data>u</Data></EventData>", {"Data": ["u"]}),
        ("<EventData>text</EventData>", {"Data": ["text"]}),
        ("<EventData Name='x'><Data Name='A'>1</Data></EventData>", {"A": "1"}),
        (
            "<EventData><Data Name='EventID'>q</Data><Data Name='UserID'>u</Data></EventData>",
            {"EventData_EventID": "q", "EventData_UserID": "u"},
        ),
        (
            "<UserData><Cleared><Subject>s</Subject><Deep><In>1</In><Out>2</Out></Deep><Level>9</Level></Cleared></UserData>",
            {"Subject": "s", "Deep_In": "1", "Deep_Out": "2", "UserData_Level": "9"},
        ),
        ("<UserData><Cleared><A q='5'>t</A></Cleared></UserData>", {"A": "t"}),
        ("<RenderingInfo Culture='en'><Message>m</Message></RenderingInfo>", {"RenderingInfo_Message": "m"}),
    ],
)
def test_fields_are_columns_by_their_names(tmp_path, data, columns):
    path = tmp_path / "log.evtx"
    path.write_bytes(evtx_bytes([event_xml(SYSTEM, data)]))
    (row,) = rows(path)
    assert told(row) == OF_SYSTEM | columns


def test_values_of_event_data_are_texts_and_those_of_system_have_types():
    event = {
        "System": {"EventID": 1, "Level": "0x4", "Task": None, "Channel": "C", "Execution": None},
        "EventData": {"ProcessId": 17220, "Flag": True, "Ratio": 0.5, "Nothing": None, "Inner": {"a": {"b": 1}}},
    }
    record = {name: value for name, value in evtx.record_of(event).items() if value is not None}
    assert record == {
        "EventID": 1,
        "Level": 4,
        "Channel": "C",
        "ProcessId": "17220",
        "Flag": "true",
        "Ratio": "0.5",
        "Inner_a_b": "1",
    }


def test_a_query_reads_a_log_by_its_path_and_in_folders_with_others(tmp_path):
    (tmp_path / "a.evtx").write_bytes(evtx_bytes(numbered(50)))
    (tmp_path / "b.jsonl").write_text('{"EventID": 3, "Channel": "J"}\n{"EventID": 70}\n')
    found = cer_gpu.compile("SELECT * FROM S WHERE S AS x FILTER x[EventID = 3]", type_column=None)
    assert found.evaluate(tmp_path / "a.evtx")["start"].to_pylist() == [3]
    assert found.evaluate(tmp_path)["start"].to_pylist() == [3, 50]
    assert found.evaluate(f"{tmp_path}/*.evtx")["start"].to_pylist() == [3]
    assert [told(row) for row in rows(tmp_path)[-2:]] == [{"EventID": 3, "Channel": "J"}, {"EventID": 70}]


def damaged(at, data):
    whole = bytearray(evtx_bytes(numbered(30), n_in_chunk=10))
    whole[at : at + len(data)] = data
    return bytes(whole)


CHUNK = 4096 + 65536  # the second one begins here
FIRST_RECORD = CHUNK + 512


@pytest.mark.parametrize(
    ("data", "n_rows", "reasons"),
    [
        (damaged(CHUNK, b"XXXXXXXX"), 20, {"damaged chunk": 1}),
        (damaged(FIRST_RECORD, b"\0\0\0\0"), 20, {"damaged record": 10}),
        (damaged(FIRST_RECORD + 40, b"\xff" * 30), 29, {"damaged record": 1}),
        (damaged(0, b"")[: CHUNK + 65536 + 9000], 20, {"chunk that is cut short": 1}),
        (damaged(0, b"") + bytes(65536), 30, {}),  # room for more events
        (damaged(0, b""), 30, {}),
    ],
)
def test_what_is_damaged_is_left_out_and_counted(data, n_rows, reasons):
    skipped = Skipped()
    numbers = [record["EventID"] for record in evtx.records(io.BytesIO(data), skipped)]
    assert len(numbers) == n_rows
    assert numbers == sorted(set(numbers))
    assert dict(skipped.reasons) == reasons
    assert all("1" in place or "2" in place for place in skipped.first.values())


def test_notes_of_the_source_name_file_count_reason_and_place(tmp_path):
    (tmp_path / "a.evtx").write_bytes(damaged(FIRST_RECORD, b"\0\0\0\0"))
    assert open_events(tmp_path).notes == [
        f"{tmp_path}/a.evtx: skipped 10 x damaged record (first: chunk 1, with the records 11 to 20)"
    ]


@pytest.mark.parametrize("data", [b"", b"no event log" * 1000, evtx_bytes(numbered(3))[:100]])
def test_a_file_that_is_no_event_log_is_named(tmp_path, data):
    (tmp_path / "x.evtx").write_bytes(data)
    with pytest.raises(EventsError, match=r"x\.evtx.*cannot be read: no event log of Windows"):
        open_events(tmp_path / "x.evtx")


def test_without_the_package_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "x.evtx").write_bytes(evtx_bytes(numbered(3)))
    monkeypatch.setitem(sys.modules, "evtx", None)
    with pytest.raises(OptionError, match=r"pip install 'cer_gpu\[evtx\]'"):
        open_events(tmp_path / "x.evtx")


@pytest.mark.skipif(not CASES.exists(), reason="the recorded events are not there")
def test_recorded_logs_have_the_events_that_are_beside_them_as_json(tmp_path):
    n_logs = n_events = 0
    with zipfile.ZipFile(CASES) as archive:
        for name in archive.namelist():
            beside = name.removesuffix(".evtx") + ".json"
            if not name.endswith(".evtx") or beside not in archive.namelist():
                continue
            skipped = Skipped()
            found = list(evtx.records(io.BytesIO(archive.read(name)), skipped))
            assert not skipped.reasons, name
            decoder, text, at, expected = json.JSONDecoder(), archive.read(beside).decode().strip(), 0, []
            while at < len(text):
                event, at = decoder.raw_decode(text, at)
                at += len(text[at:]) - len(text[at:].lstrip())
                expected += event if isinstance(event, list) else [event]
            assert len(found) == len(expected), name
            for record, event in zip(found, expected, strict=True):
                system, data = event["Event"]["System"], event["Event"].get("EventData") or {}
                number = system["EventID"]
                assert record["EventID"] == int(number["#text"] if isinstance(number, dict) else number)
                assert (record["Channel"], record["Computer"]) == (system["Channel"], system["Computer"])
                named = {key: value for key, value in data.items() if key not in ("#attributes", "Data")}
                for key in named.keys() - set(evtx.SYSTEM_COLUMNS):  # its texts were edited
                    text = named[key] if isinstance(named[key], str | None) else json.dumps(named[key])
                    assert (record[key] or "").strip().lower() == (text or "").strip().lower(), (name, key)
            n_logs, n_events = n_logs + 1, n_events + len(found)
    assert n_logs > 90
    assert n_events > 100
