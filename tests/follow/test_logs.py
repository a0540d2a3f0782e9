"""Logs that appear in a folder: each is read once it is finished, as other files are."""

import json
import zipfile

import pytest
from evtx_writer import event_xml, evtx_bytes
from follow.live import Followed, found_in

import cer_gpu
from cer_gpu.follow.folder_watcher import FolderWatcher
from cer_gpu.follow.following import Follower
from cer_gpu.follow.targets import live_target

pytest.importorskip("evtx")
QUERY = cer_gpu.compile(
    "SELECT * FROM S WHERE S AS x ; S AS y FILTER x[EventID = 1] AND y[EventID = 2]", type_column=None
)


def log(*numbers):
    return evtx_bytes([event_xml(f"<EventID>{each}</EventID><Channel>C</Channel>") for each in numbers])


def steps(folder):
    arrivals, target = FolderWatcher(str(folder / "in"), 0), live_target(folder / "found.jsonl")
    follower = Follower(arrivals, target, lambda schema: Followed(QUERY, schema), {})
    found = []
    with follower.opened() as live:
        while (step := live.step()) is not None:
            found.append((step.files, step.n_events))
    return found


def test_event_logs_json_and_archives_that_come_one_by_one(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.evtx").write_bytes(log(1, 5))
    assert steps(tmp_path) == [(["1.evtx"], 2)]
    (folder / "2.log").write_text("")  # nothing to recognise yet
    assert steps(tmp_path) == []
    (folder / "2.log").write_text('{"EventID": 7, "Channel": "J", "More": 1}\n')
    (folder / "3.json").write_text(json.dumps({"Records": [{"EventID": 2}, {"EventID": 9}]}, indent=1))
    assert steps(tmp_path) == [(["2.log", "3.json"], 3)]
    with zipfile.ZipFile(folder / "4.zip", "w") as archive:
        archive.writestr("a/x.evtx", log(8))
        archive.writestr("b.evtx", log(2, 2))
    assert steps(tmp_path) == [(["4.zip/a/x.evtx", "4.zip/b.evtx"], 3)]
    assert steps(tmp_path) == []
    rows = [json.loads(row) for row in found_in(tmp_path / "found.jsonl")]
    assert [row["positions"] for row in rows] == [[0, 3], [0, 6], [0, 7]]
