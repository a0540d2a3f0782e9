"""Forecasts from frames, of the library of the frame."""

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu import OptionError

pl = pytest.importorskip("polars")
pd = pytest.importorskip("pandas")

EVENTS = {"type": ["A", "C", "B", "C"] * 300}
QUERY = "SELECT * FROM S WHERE A ; B"


@pytest.mark.parametrize("library", [pl, pd])
def test_a_frame_is_forecast_in_its_own_library(library):
    frame = library.DataFrame(EVENTS)
    model = frame.cer.fit(QUERY, ["2 events"])
    rows = frame.cer.forecast(model, at="events")
    assert type(rows) is type(frame)
    expected = cer_gpu.compile(QUERY).fit(pa.table(EVENTS), ["2 events"]).forecast(pa.table(EVENTS), at="events")
    assert rows["probability_2_events"].to_list() == expected["probability_2_events"].to_pylist()


def test_a_lazy_frame_gives_a_lazy_frame():
    frame = pl.LazyFrame(EVENTS)
    rows = frame.cer.forecast(frame.cer.fit(QUERY, "2 events"))
    assert isinstance(rows, pl.LazyFrame)
    assert rows.collect().height == 1


def test_what_is_no_forecast_is_refused():
    frame = pl.DataFrame(EVENTS)
    with pytest.raises(OptionError, match="expected a Forecast"):
        frame.cer.forecast(QUERY)
    with pytest.raises(OptionError, match="this is a set"):
        frame.cer.fit({"a": QUERY}, "2 events")
    with pytest.raises(OptionError, match="no option 'ordr'"):
        frame.cer.fit(QUERY, "2 events", ordr=1)
