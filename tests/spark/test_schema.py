import pyarrow as pa
import pytest

from cer_gpu.errors import EventsError

st = pytest.importorskip("pyspark.sql.types")
from pyspark.sql.pandas.types import from_arrow_schema  # noqa: E402

from spark_glue.schema import to_arrow, to_spark  # noqa: E402

COLUMNS = st.StructType(
    [
        st.StructField("flag", st.BooleanType()),
        st.StructField("tiny", st.ByteType()),
        st.StructField("small", st.ShortType()),
        st.StructField("int", st.IntegerType(), nullable=False),
        st.StructField("long", st.LongType()),
        st.StructField("float", st.FloatType()),
        st.StructField("double", st.DoubleType()),
        st.StructField("price", st.DecimalType(12, 3)),
        st.StructField("name", st.StringType()),
        st.StructField("blob", st.BinaryType()),
        st.StructField("day", st.DateType()),
        st.StructField("instant", st.TimestampType()),
        st.StructField("clock", st.TimestampNTZType()),
        st.StructField("taken", st.DayTimeIntervalType()),
        st.StructField("list", st.ArrayType(st.LongType(), containsNull=False)),
        st.StructField("pair", st.StructType([st.StructField("x", st.LongType())])),
    ]
)


def test_there_and_back():
    assert to_spark(to_arrow(COLUMNS)) == COLUMNS


def test_as_pyspark_does():
    assert from_arrow_schema(to_arrow(COLUMNS)) == COLUMNS


def test_strings_in_every_form_are_strings():
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    spark = to_spark(pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)]))
    assert [f.dataType for f in spark] == [st.StringType()] * 3


def test_type_without_a_like_carries_its_name():
    schema = st.StructType([st.StructField("m", st.MapType(st.StringType(), st.LongType()))])
    assert "map<string,bigint>" in str(to_arrow(schema).field("m").type)


def test_column_that_spark_has_no_type_for():
    with pytest.raises(EventsError, match=r"column 'h' .* halffloat"):
        to_spark(pa.schema([("h", pa.float16())]))
