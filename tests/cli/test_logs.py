"""Logs on the command line: from a folder of them to alerts, notes on what was left out, the limit of compression."""

import gzip
import json
from pathlib import Path

import pytest
from evtx_writer import event_xml, evtx_bytes

pytest.importorskip("evtx")
RULE = """
title: Whoami
id: 0e95725d-7320-415d-80f7-004da920fc11
status: test
logsource: {product: windows, category: process_creation}
detection:
  selection: {Image|endswith: '\\whoami.exe'}
  condition: selection
level: high
"""
SYSMON = "<Channel>Microsoft-Windows-Sysmon/Operational</Channel><EventID>1</EventID>"


def started(*images):
    return evtx_bytes(
        [event_xml(SYSMON, f"<EventData><Data Name='Image'>{each}</Data></EventData>") for each in images]
    )


def folder_of_logs():
    folder = Path("logs")
    (folder / "sub").mkdir(parents=True)
    (folder / "1.evtx").write_bytes(started("C:\\x.exe", "C:\\whoami.exe"))
    (folder / "sub" / "2.evtx.old").write_bytes(gzip.compress(started("C:\\WHOAMI.exe")))
    trail = {"Records": [{"eventName": "ConsoleLogin", "userIdentity": {"arn": "a"}}]}
    (folder / "trail.json.gz").write_bytes(gzip.compress(json.dumps(trail, indent=1).encode()))
    (folder / "readme.txt").write_text("hello")
    return folder


def test_rules_over_a_folder_of_logs_need_no_other_option(cli):
    pytest.importorskip("sigma")
    folder_of_logs()
    Path("rules").mkdir()
    Path("rules", "whoami.yml").write_text(RULE)
    code, out, err = cli("run", "--queries", "rules", "logs", "--pipeline", "windows", "--json")
    assert (code, json.loads(out)["n_rows"]) == (0, 2), err
    assert json.loads(out)["notes"] == [] or all("NewProcessName" in note for note in json.loads(out)["notes"])


def test_event_logs_are_read_in_the_order_of_their_times_which_nobody_names(cli):
    later, earlier = "2026-11-27T12:00:01.5Z", "2026-11-27T12:00:00Z"
    for name, time, number in (("a", later, 2), ("b", earlier, 1)):
        event = event_xml(f"<EventID>{number}</EventID>", at=time)
        Path("logs").mkdir(exist_ok=True)
        Path("logs", f"{name}.evtx").write_bytes(evtx_bytes([event]))
    query = "SELECT * FROM S WHERE S AS x ; S AS y FILTER x[EventID = 1] AND y[EventID = 2] WITHIN 5 SECONDS"
    code, out, err = cli("run", query, "logs", "--no-type-column", "--json")
    assert (code, json.loads(out)["n_rows"]) == (0, 1), err
    assert json.loads(out)["notes"] == [
        "the events are sorted by TimeCreated, their log time (--time-column sets another column)"
    ]
    assert cli("run", query, "logs", "--no-type-column", "--after", "2026-11-27T12:00:01Z")[1].startswith("no ")
    Path("logs", "c.json").write_text(json.dumps([{"EventID": 3}]))
    code, _, err = cli("run", query, "logs", "--no-type-column")
    assert code == 1, "other events have no time that is known"
    assert "--time-column" in err


def test_what_is_damaged_is_a_note_with_file_count_reason_and_place(cli):
    folder = folder_of_logs()
    data = bytearray(evtx_bytes([event_xml(f"<EventID>{i}</EventID>") for i in range(30)], n_in_chunk=10))
    data[4096 + 65536 + 512 : 4096 + 65536 + 516] = bytes(4)
    (folder / "3.evtx").write_bytes(data)
    query = "SELECT * FROM S WHERE S AS x FILTER x[EventID > 20]"
    code, out, err = cli("run", query, "logs", "--no-type-column", "--json")
    assert (code, json.loads(out)["n_rows"]) == (0, 9), err
    (note,) = json.loads(out)["notes"]
    assert note == "logs/3.evtx: skipped 10 x damaged record (first: chunk 1, with the records 11 to 20)"
    code, out, err = cli("run", query, "logs", "--no-type-column")
    assert f"note: {note}\n" in err


def test_a_bomb_is_an_error_with_the_file_and_the_limit(cli):
    Path("bomb.csv.gz").write_bytes(gzip.compress(b"type,v\n" + b"A,1\n" * 1_000_000))
    query = "SELECT * FROM S WHERE A FILTER A[v > 2]"
    code, out, err = cli("run", query, "bomb.csv.gz", "--max-decompressed", "1MiB")
    assert (code, out) == (1, "")
    assert err.startswith(
        "error: bomb.csv.gz: has more than max_decompressed (1.0 MiB) after its decompression\nhint: "
    )
    assert cli("run", query, "bomb.csv.gz", "--max-decompressed", "1 GB")[0] == 0
    code, _, err = cli("run", query, "bomb.csv.gz", "--max-decompressed", "much")
    assert code != 0
    assert "max_decompressed must be a size" in err
