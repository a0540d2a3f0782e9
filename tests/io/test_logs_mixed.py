"""Logs of all formats in one folder, told by their content, and read as one stream."""

import gzip
import json

import pytest
from evtx_writer import event_xml, evtx_bytes

import cer_gpu
from cer_gpu.io.files import find_files
from cer_gpu.io.formats import stored_format
from cer_gpu.io.sources import open_events

pytest.importorskip("evtx")
ZEEK = (
    "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tconn\n"
    "#fields\tts\tuid\tid.orig_p\ttags\n#types\ttime\tstring\tport\tset[string]\n"
    "1709269202.5\tC1\t80\ta,b\n1709269203.5\tC2\t81\t-\nbroken\n"
)
AUDIT = (
    'type=SYSCALL msg=audit(1709269202.500:1): arch=c000003e pid=2 comm="ls" exe="/usr/bin/ls"\n'
    'type=EXECVE msg=audit(1709269202.500:1): argc=2 a0="ls" a1="-l"\n'
)
SYSMON = (
    'Nov 27 12:00:00 host sysmon: <Event><System><Provider Name="Linux-Sysmon"/><EventID>1</EventID>'
    '<TimeCreated SystemTime="2024-03-01T05:00:00.000000000Z"/><Channel>Linux-Sysmon/Operational</Channel></System>'
    '<EventData><Data Name="Image">/bin/ls</Data></EventData></Event>\n'
)
FILES = {
    "1-windows": (evtx_bytes([event_xml("<EventID>1</EventID>")]), "EVTX", 1),
    "2-conn.log": (ZEEK.encode(), "Zeek", 2),
    "3-conn.log.gz": (gzip.compress(ZEEK.encode()), "Zeek", 2),
    "4-audit.log.1": (AUDIT.encode(), "auditd", 2),
    "5-syslog": (SYSMON.encode(), "Sysmon for Linux", 1),
    "6-trail.json": (json.dumps({"Records": [{"EventID": 5}, {"EventID": 6}]}).encode(), "JSON", 2),
}


def test_logs_of_all_formats_are_one_stream(tmp_path):
    for name, (data, _, _) in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "readme").write_text("hello")
    files = find_files(str(tmp_path))
    assert [stored_format(file).name for file in files] == [format for _, format, _ in FILES.values()]
    source = open_events(tmp_path)
    columns = ["EventID", "uid", "id.orig_p", "tags", "type", "a1", "Image"]
    rows = [row for batch in source.batches(columns) for row in batch.to_pylist()]
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == [
        {"EventID": 1},
        *[{"uid": "C1", "id.orig_p": 80, "tags": ["a", "b"]}, {"uid": "C2", "id.orig_p": 81}] * 2,
        {"type": "SYSCALL"},
        {"type": "EXECVE", "a1": "-l"},
        {"EventID": 1, "Image": "/bin/ls"},
        {"EventID": 5},
        {"EventID": 6},
    ]
    assert sum(n for _, _, n in FILES.values()) == len(rows)
    assert source.remarks == {}
    assert [note.split(": skipped ")[0] for note in source.notes] == [str(files[1]), str(files[2])]
    assert all("1 x line of Zeek" in note and "line 10" in note for note in source.notes)
    query = cer_gpu.compile("SELECT * FROM S WHERE S AS x FILTER x[EventID = 1]", type_column=None)
    assert query.evaluate(tmp_path)["start"].to_pylist() == [0, 7]
