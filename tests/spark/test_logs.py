"""Logs by their paths: tasks and Spark read none of their formats, and the error says who does."""

import pytest
from evtx_writer import event_xml, evtx_bytes

pytest.importorskip("pyspark")

from cer_gpu.errors import OptionError
from spark_glue.match import _Events


class NoSession:
    """A session whose reader must not be asked."""


@pytest.mark.parametrize("name", ["x.evtx", "conn.log"])
def test_a_log_is_refused_before_spark_is_asked(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(evtx_bytes([event_xml("<EventID>1</EventID>")]) if name.endswith("x") else b"#separator \\x09\n")
    events = object.__new__(_Events)
    events._df, events._paths, events.spark, events.reason = None, (str(path),), NoSession(), ""
    with pytest.raises(OptionError, match=r"neither a Parquet file nor an Arrow IPC file.*\nhint: logs and text"):
        events.rows()
