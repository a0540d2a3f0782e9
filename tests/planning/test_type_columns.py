"""Events without the column of types: the error names the columns that could be it, and says how to have none."""

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import cer_gpu

QUERY = cer_gpu.compile("SELECT * WHERE A ; B")
TABLE = pa.table({"place": ["n", "s"], "kind": pa.array(["A", "B"]).dictionary_encode(), "temp": [41, 5]})
NONE = "without types, the name of the stream is that of all events: type_column=None (--no-type-column)"


def hint(events):
    with pytest.raises(cer_gpu.QueryTypeError, match="the events have no column 'type'") as caught:
        QUERY.evaluate(events)
    return caught.value.hint


def test_a_column_that_holds_types_of_the_query_is_named(tmp_path):
    pa_csv.write_csv(TABLE.set_column(1, "kind", TABLE["kind"].cast(pa.string())), tmp_path / "e.csv")
    told = f"the types may stand in 'kind', which has 'A' and 'B': type_column='kind' (--type-column kind); {NONE}"
    assert hint(TABLE) == hint(tmp_path / "e.csv") == told
    assert QUERY.evaluate(pa.table({"type": ["A", "B"]})).num_rows == 1


def test_events_that_are_read_once_are_not_looked_into():
    reader = TABLE.to_reader()
    assert hint(reader).startswith("the types may stand in 'place' (or 'kind'): type_column='place'")
    assert reader.read_all().num_rows == 2


def test_a_near_name_is_asked_for_and_tables_without_text_are_told():
    named = TABLE.rename_columns(["place", "typ", "temp"]).slice(0, 0)
    assert hint(named).startswith("did you mean 'typ'? type_column='typ' (--type-column typ)")
    assert hint(TABLE.select(["temp"])) == f"no column holds text; {NONE}"


def test_without_types_predicates_tell_events_apart():
    text = "SELECT * FROM S WHERE S AS a ; S AS b FILTER a[temp > 40] AND b[temp < 10]"
    assert cer_gpu.compile(text, type_column=None).evaluate(TABLE)["positions"].to_pylist() == [[0, 1]]
