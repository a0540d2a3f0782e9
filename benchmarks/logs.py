"""Event logs of Windows: records per second of their conversion, by one process and by several, and of reading again.

    python benchmarks/logs.py FOLDER --copies 20

FOLDER has ``.evtx`` files, such as those of SigmaHQ's regression_data; each is copied so many times.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from cer_gpu.io import formats
from cer_gpu.io.logs import processes as log_processes
from cer_gpu.io.logs.converted import LogConverter
from cer_gpu.io.sources import open_events


def measured(folder: Path, n_processes: int) -> tuple[int, float, float, float]:
    """Return the records of a folder, and seconds: of its opening, of the processor in it, and of reading columns."""
    log_processes.MAX_CONVERTERS = n_processes
    log_processes.WORTHWHILE_BYTES = 1
    log_processes.CONVERTER = formats.CONVERTER = LogConverter()
    begin, begin_here = time.perf_counter(), time.process_time()
    source = open_events(folder)
    opened, here = time.perf_counter(), time.process_time() - begin_here
    n_records = sum(batch.num_rows for batch in source.batches(["EventID", "Channel"]))
    return n_records, opened - begin, here, time.perf_counter() - opened


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        n_bytes = 0
        for path in sorted(given.folder.rglob("*.evtx")):
            for copy in range(given.copies):
                shutil.copy(path, Path(place, f"{copy}-{path.name}"))
                n_bytes += path.stat().st_size
        print(f"{n_bytes / 1e6:,.0f} MB")
        for n_processes in given.processes:
            n_records, converting, here, reading = measured(Path(place), n_processes)
            rate = f"{n_records / converting:,.0f}/s; {here:.2f} s of the processor here"
            print(f"{n_processes} processes: {n_records:,} records in {converting:.2f} s ({rate})")
            print(f"two columns again in {reading:.2f} s")


if __name__ == "__main__":
    main()
