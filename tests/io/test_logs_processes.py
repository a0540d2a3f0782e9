"""Several processes convert several logs: the same rows and notes as one gives, whatever becomes of a process."""

import os
import subprocess

import pytest
from evtx_writer import event_xml, evtx_bytes

from cer_gpu.errors import EventsError
from cer_gpu.io import formats
from cer_gpu.io.logs import processes as log_processes
from cer_gpu.io.logs.converted import LogConverter
from cer_gpu.io.sources import open_events

pytest.importorskip("evtx")
N_FILES = 4


def log(file):
    numbers = range(30 * file, 30 * file + 30)
    data = "<EventData><Data Name='N'>{0}</Data><Data Name='F{1}'>x</Data></EventData>"
    return evtx_bytes([event_xml(f"<EventID>{i}</EventID>", data.format(i, file)) for i in numbers], n_in_chunk=10)


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """A folder of logs, the second of them damaged, that processes convert; and the numbers of processes begun."""
    for i in range(N_FILES):
        (tmp_path / f"{i}.evtx").write_bytes(log(i))
    data = bytearray(log(1))
    data[4096 + 65536 : 4096 + 65536 + 8] = b"XXXXXXXX"
    (tmp_path / "1.evtx").write_bytes(data)
    begun = []

    class Watched(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            begun.append(self)

    monkeypatch.setattr(log_processes.subprocess, "Popen", Watched)
    monkeypatch.setattr(log_processes, "WORTHWHILE_BYTES", 1)
    monkeypatch.setattr(log_processes, "_cores", lambda: 2)
    converter = LogConverter()
    for module in (log_processes, formats):
        monkeypatch.setattr(module, "CONVERTER", converter)
    return tmp_path, begun


def rows_and_notes(folder):
    source = open_events(folder)
    rows = [row for batch in source.batches(["EventID", "N", "F3"]) for row in batch.to_pylist()]
    return rows, source.notes


@pytest.mark.long("converts many logs in several processes")
def test_the_rows_and_notes_are_those_of_one_process(logs, monkeypatch):
    folder, begun = logs
    found = rows_and_notes(folder)
    assert len(begun) == 2
    assert [process.returncode for process in begun] == [0, 0]
    assert rows_and_notes(folder) == found
    assert len(begun) == 2  # kept
    with monkeypatch.context() as patch:
        patch.setattr(log_processes, "_cores", lambda: 1)
        patch.setattr(formats, "CONVERTER", LogConverter())
        assert rows_and_notes(folder) == found
    assert len(found[0]) == 30 * N_FILES - 10
    assert found[1] == [
        f"{folder}/1.evtx: skipped 1 x damaged chunk (first: after 10 records: Failed to parse chunk header)"
    ]


def test_a_file_that_is_no_log_is_the_error_of_one_process(logs):
    folder, begun = logs
    (folder / "2.evtx").write_bytes(b"no log")
    with pytest.raises(EventsError, match=r"2\.evtx: cannot be read: no event log of Windows"):
        open_events(folder)
    assert len(begun) == 2


@pytest.mark.parametrize(
    "command", ["import sys; sys.exit(3)", "import os, sys; sys.stdin.buffer.read(9); os._exit(9)"]
)
def test_processes_that_end_leave_their_files_to_this_one(logs, monkeypatch, command):
    folder, begun = logs
    watched = log_processes.subprocess.Popen
    monkeypatch.setattr(
        log_processes.subprocess, "Popen", lambda args, **options: watched([args[0], "-c", command], **options)
    )
    assert len(rows_and_notes(folder)[0]) == 30 * N_FILES - 10
    assert len(begun) == 2


def test_small_logs_are_converted_here(logs, monkeypatch):
    folder, begun = logs
    monkeypatch.setattr(log_processes, "WORTHWHILE_BYTES", sum(os.stat(file).st_size for file in folder.iterdir()) + 1)
    rows_and_notes(folder)
    assert begun == []
