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
    (note,) = json.loads(out)["notes"]  # and none on NewProcessName, which is that of other logs
    assert note.startswith("the events are in the order of the files")


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
    _, note = json.loads(out)["notes"]
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


def test_files_that_cannot_be_read_end_a_run_or_are_skipped_and_named(cli):
    pytest.importorskip("sigma")
    folder = folder_of_logs()
    (folder / "3.evtx").write_bytes(b"")
    (folder / "4.zip").write_bytes(b"PK\3\4 no archive")
    Path("rules").mkdir()
    Path("rules", "whoami.yml").write_text(RULE)
    command = ["run", "--queries", "rules", "logs", "--pipeline", "windows"]
    code, _, err = cli(*command)
    assert code == 1
    assert err.endswith("\nhint: repair or remove it, or use --skip-unreadable\n")
    code, out, err = cli(*command, "--skip-unreadable", "--json")
    assert (code, json.loads(out)["n_rows"]) == (0, 2), err
    (note,) = [note for note in json.loads(out)["notes"] if "skipped" in note]
    assert note.startswith("2 files skipped, unreadable: logs/4.zip: cannot be read: ")
    assert "; logs/3.evtx: cannot be read: no event log of Windows" in note
    code, _, err = cli("report", *command[1:], "--skip-unreadable", "-o", "page.html")
    assert code == 0, err
    assert f"note: {note}\n" in err
    code, _, err = cli("run", "--queries", "rules", "logs/3.evtx", "--pipeline", "windows", "--skip-unreadable")
    assert code == 1
    assert err.startswith("error: logs/3.evtx: cannot be read: ")


def test_a_file_that_breaks_off_while_it_is_read_is_skipped_as_a_whole(cli):
    rows = [{"type": "A", "number": i} for i in range(400_000)]
    data = gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode())
    Path("logs").mkdir()
    Path("logs", "1.jsonl.gz").write_bytes(data[: len(data) * 9 // 10])
    Path("logs", "2.jsonl").write_text('{"type": "A", "number": 1}\n')
    code, _, err = cli("run", "SELECT * FROM S WHERE A", "logs", "-o", "found.parquet")
    assert code == 1
    assert "hint: repair or remove it, or use --skip-unreadable" in err
    code, _, err = cli("run", "SELECT * FROM S WHERE A", "logs", "-o", "found.parquet", "--skip-unreadable")
    assert (code, err.partition(", ")[0]) == (0, "1 row"), err
    assert "note: 1 file skipped, unreadable: logs/1.jsonl.gz: cannot be read: " in err
    code, _, err = cli("report", "SELECT * FROM S WHERE A", "logs", "-o", "a.html", "--skip-unreadable")
    assert (code, err.partition(", ")[0]) == (0, "1 row"), err


def follow_rules(cli, *options):
    command = ["run", "--queries", "rules", "--pipeline", "windows", "--follow", "in", "--once", "--settle", "0"]
    code, _, err = cli(*command, "-o", "found.jsonl", *options)
    lines = Path("found.jsonl").read_text().splitlines() if Path("found.jsonl").exists() else []
    return code, err, [json.loads(line) for line in lines]


def test_a_followed_log_gets_the_columns_that_rules_read_and_its_first_file_lacks(cli):
    pytest.importorskip("sigma")
    Path("rules").mkdir()
    Path("rules", "whoami.yml").write_text(RULE)
    Path("in").mkdir()
    Path("in", "0.evtx").write_bytes(evtx_bytes([event_xml()])[:4096])  # an event log without records
    Path("in", "1.evtx").write_bytes(
        evtx_bytes([event_xml("<Channel>Security</Channel><EventID>4624</EventID><Computer>A</Computer>")])
    )
    code, err, alerts = follow_rules(cli)
    assert (code, alerts) == (0, []), err
    assert "the first file has no column for 1 field that rules read, which later files may have: Image\n" in err
    Path("in", "2.evtx").write_bytes(started("C:\\whoami.exe"))
    Path("in", "3.jsonl").write_text(
        json.dumps(
            {
                "TimeCreated": "2026-11-27T12:00:00Z",
                "EventID": 1,
                "Channel": "Microsoft-Windows-Sysmon/Operational",
                "Image": "C:\\Whoami.exe",
            }
        )
    )
    code, err, alerts = follow_rules(cli)
    assert (code, [alert["positions"] for alert in alerts]) == (0, [[1], [2]]), err
    assert json.loads(alerts[0]["events"])[0]["Image"] == "C:\\whoami.exe"


def test_followed_json_lines_get_columns_for_what_sigma_reads_or_end_the_run(cli):
    pytest.importorskip("sigma")
    Path("rules").mkdir()
    Path("rules", "port.yml").write_text(
        "title: Port\nlogsource: {product: windows}\nlevel: low\n"
        "detection: {selection: {port: 445, ok: true}, condition: selection}\n"
    )
    Path("in").mkdir()
    Path("in", "1.jsonl").write_text('{"EventID": 1}\n')
    Path("in", "2.jsonl").write_text('{"EventID": 1, "port": 445, "ok": true}\n{"port": 44, "ok": true}\n')
    Path("in", "3.jsonl").write_text('{"EventID": 1, "port": "445", "ok": "true"}\n')
    code, err, alerts = follow_rules(cli)
    assert (code, [alert["positions"] for alert in alerts]) == (0, [[1], [3]]), err
    Path("rules", "big.eql").write_text("any where size > 5")
    Path("in", "4.jsonl").write_text('{"EventID": 1, "size": 7}\n')
    code, err, _ = follow_rules(cli, "-o", "other.jsonl", "--no-type-column")
    assert code == 1
    assert "in/4.jsonl: has fields that the queries read and the first file did not have" in err
    assert "'size'\nhint: --schema-of FOLDER" in err
    code, _, err = cli(
        *("run", "--queries", "rules", "--pipeline", "windows", "--follow", "in", "--once", "--settle", "0"),
        *("-o", "with.jsonl", "--no-type-column", "--schema-of", "in"),
    )
    assert (code, len(Path("with.jsonl").read_text().splitlines())) == (0, 3), err


def test_keywords_that_followed_files_may_have_in_other_columns_are_a_note(cli):
    pytest.importorskip("sigma")
    Path("rules").mkdir()
    Path("rules", "word.yml").write_text(
        "title: Word\nlogsource: {product: windows}\nlevel: low\n"
        "detection: {keywords: [mimikatz], condition: keywords}\n"
    )
    Path("in").mkdir()
    Path("in", "1.jsonl").write_text('{"Channel": "a"}\n')
    Path("in", "2.jsonl").write_text('{"Channel": "a", "Other": "mimikatz"}\n')
    code, err, _ = follow_rules(cli)
    assert code == 0
    assert "note: 1 rule with keywords does not read columns that the first file did not have, such as 'Other'" in err


def test_a_rule_of_ceql_suppresses_alerts_and_keeps_its_level(cli):
    Path("rules").mkdir()
    Path("rules", "whoami.toml").write_text(
        """[rule]
name = "Whoami, once an hour on each host"
severity = "high"
language = "ceql"
query = '''
SELECT * FROM logs WHERE * AS e FILTER e[EventID = 1 AND Image GLOB '*\\whoami.exe' NOCASE]
PARTITION BY [Computer] LIMIT 1 EVERY 1 HOUR
'''
"""
    )
    system, data = f"{SYSMON}<Computer>A</Computer>", "<EventData><Data Name='Image'>C:\\whoami.exe</Data></EventData>"
    Path("a.evtx").write_bytes(
        evtx_bytes([event_xml(system, data, at=f"2026-11-27T{hour}:00Z") for hour in ("12:00", "12:30", "12:59")])
    )
    code, out, err = cli("run", "--queries", "rules", "a.evtx", "--json")
    facts = json.loads(out)
    assert (code, facts["n_rows"], facts["n_suppressed"], facts["levels"]) == (0, 1, 2, {"high": 1}), err


def test_check_takes_the_time_column_of_logs_as_run_does(cli):
    Path("a.evtx").write_bytes(evtx_bytes([event_xml("<EventID>1</EventID>")]))
    query = "SELECT * FROM Log WHERE Log AS a ; Log AS b WITHIN 5 MINUTES"
    code, _, err = cli("check", query, "a.evtx", "--no-type-column")
    assert code == 0, err
    code, _, err = cli("run", query, "a.evtx")
    assert code == 1
    assert "(--no-type-column)" in err


def test_logs_of_several_formats_are_not_sorted_and_a_note_says_so(cli):
    Path("logs").mkdir()
    Path("logs", "1.evtx").write_bytes(evtx_bytes([event_xml("<EventID>1</EventID>")]))
    Path("logs", "2.json").write_text(json.dumps([{"EventID": 1}]))
    code, out, err = cli(
        "run", "SELECT * FROM S WHERE S AS x FILTER x[EventID = 1]", "logs", "--no-type-column", "--json"
    )
    assert (code, json.loads(out)["n_rows"]) == (0, 2), err
    assert json.loads(out)["notes"] == [
        "the events are in the order of the files, and alerts have no times: the logs have different time columns "
        "(--time-column sets one for all): logs/1.evtx has TimeCreated; logs/2.json has none of its format"
    ]


def test_a_log_of_which_no_record_can_be_read_is_an_error_that_says_so(cli):
    data = started("C:\\whoami.exe")
    Path("cut.evtx").write_bytes(data[:5000])
    Path("none.evtx").write_bytes(data[:4096])
    query = "SELECT * FROM S WHERE S AS x FILTER x[EventID = 1]"
    code, _, err = cli("run", query, "cut.evtx", "--no-type-column")
    assert code == 1
    assert err.startswith("error: cut.evtx: no records can be read: skipped 1 x chunk that is cut short")
    code, _, err = cli("run", query, "none.evtx", "--no-type-column")
    assert (code, err) == (1, "error: none.evtx: has no records\nhint: expected a log with events\n")
    Path("whole.evtx").write_bytes(data)
    code, out, err = cli("run", query, "cut.evtx", "none.evtx", "whole.evtx", "--no-type-column", "--json")
    assert (code, json.loads(out)["n_rows"]) == (0, 1), err


def test_explain_takes_fields_for_null_that_the_logs_do_not_have(cli):
    pytest.importorskip("sigma")
    Path("whoami.yml").write_text(RULE)
    Path("a.evtx").write_bytes(started("C:\\whoami.exe", "C:\\x.exe"))
    code, out, err = cli("explain", "whoami.yml", "a.evtx", "--pipeline", "windows")
    assert code == 0, err
    assert "the events have no NewProcessName: null" in out
    assert cli("explain", "whoami.yml", "a.evtx", "--pipeline", "windows", "--analyze")[0] == 0
