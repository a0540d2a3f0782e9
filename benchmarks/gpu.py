"""Measure the evaluation on a GPU beside the CPU and beside floors, which are measured in the same run.

    python benchmarks/gpu.py [--events N ...] [--repeat K] [--only PART ...] [--seconds S] [--save] ...

Without a GPU it says so, and writes nothing.  It needs numpy, numba, cupy, pyarrow and lark.  A size that does not fit
into the memory, or into the seconds that are left, is left out by a line that says so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import gpu_results
import gpu_sets
import numpy as np
import pyarrow as pa
from measure import seconds
from report import RESULTS, Results, Row, cell, markdown
from sigma_rules import BESIDE

import cer_gpu
from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.device import Device, Memory, OutOfDeviceMemory
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.ceql.parser import parse
from cer_gpu.columnar.columns import Block
from cer_gpu.engine.blocks import BLOCK_ROWS
from cer_gpu.predicates import guards as predicates
from cer_gpu.predicates import placement
from cer_gpu.predicates.guards import COMPILED, BoundGuards, GuardEvaluator
from cer_gpu.predicates.symbol_table import SymbolTable

TITLE = "GPU"
FLOORS, PREDICATES, QUERIES, SETS = "GPU, floors", "GPU, predicates", "GPU, whole queries", "GPU, sets of rules"
NOTES = {
    TITLE: "What was measured on a GPU.",
    FLOORS: "The fastest that memory and bus give: the other tables are shares of these.",
    PREDICATES: (
        "Predicates on float32 columns, of which about 1% of the events satisfy one, against one core. The floor of "
        "columns on the device is the reading of its memory, and that of columns on the host are copies from pinned "
        "memory. Columns of fewer bytes than the cache of the GPU has stay in it from one call to the next."
    ),
    SETS: (
        "SigmaHQ's rules about Windows over recorded events: the rows of all their guards in one block, from texts in "
        "the memory of the host on, against one core; and whole evaluations, with a GPU or without. The first "
        "evaluation, which binds the rules to the columns, is not counted."
    ),
    QUERIES: "From events on the host to matches: on one core, and on all of them, each with a GPU or without.",
}
SIZES = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
OF_ALL_SIZES = (4, 4)
"""Predicates and columns that are measured at every size."""
AT_ONE_SIZE = ((1, 1), (4, 1), (16, 4), (16, 16), (64, 16))
"""Predicates and columns that are measured at `ONE_SIZE` alone, or at the largest size below it."""
ONE_SIZE = 100_000_000
GPU_BLOCK = BLOCK_ROWS * placement.BLOCKS_AT_ONCE
LARGE_BLOCK = 1 << 26
"""Rows of a block that hides what each block costs."""
SHARE = 0.01
SHIFT = 1 << 22
"""Values between the beginnings of two columns, which share one array: more than the cache of a GPU holds of all."""
OF_DEVICE, OF_COPIES, OF_BETTER = 0.70, 1 / 1.2, 1 / 1.1
ENDS = 10
"""Events of a whole query that may end a complex event."""
QUERIES_BY_NAME = {
    "A ; B+ ; C": "SELECT * FROM S WHERE A ; B+ ; C WITHIN 100 EVENTS",
    "A ; B+ ; C, filters": (
        "SELECT * FROM S WHERE A ; B+ ; C FILTER A[x > 0.5] AND B[x < 0.3] AND C[x >= 0] WITHIN 100 EVENTS"
    ),
    "A ; C, filter between events": "SELECT * FROM S WHERE A AS a ; C AS c FILTER c.x > a.x WITHIN 100 EVENTS",
}
KERNELS = """
struct alignas(16) cer_pair { cer_u64 a, b; };
CER_KERNEL cer_copy_pairs(const cer_pair* __restrict__ from, cer_pair* __restrict__ to, cer_i64 n) {
  for (cer_i64 i = CER_WARP * CER_LANES + CER_LANE; i < n; i += CER_WARPS * CER_LANES) to[i] = from[i];
}
CER_KERNEL cer_read_pairs(const cer_pair* __restrict__ from, cer_u64* __restrict__ to, cer_i64 n) {
  cer_u64 found = 0;
  for (cer_i64 i = CER_WARP * CER_LANES + CER_LANE; i < n; i += CER_WARPS * CER_LANES) found |= from[i].a | from[i].b;
  if (found == 1) *to = found;
}
"""


# ---- time and memory ------------------------------------------------------------------------------------------------


class LeftOutError(Exception):
    """The reason why something is not measured."""


@dataclass
class Budget:
    """Seconds that are left, and those that a call took at a smaller size."""

    end: float
    _taken: dict[object, tuple[int, float]] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.perf_counter()

    def expected(self, what: object, n: int) -> float:
        """Return the seconds that one round of calls will take; 0: not known."""
        rows, taken = self._taken.get(what, (1, 0.0))
        return taken * n / rows

    def measured(self, what: object, n: int, repeat: int, *runs: Callable[[], object]) -> list[float]:
        """Return the median seconds of calls, in turn.

        Raises
        ------
        LeftOutError
            When not even two rounds fit into what is left.
        """
        expected = self.expected(what, n)
        fit = repeat if not expected else min(repeat, int(self.left / expected) - 1)
        if fit < 1 or self.left <= 0:
            raise LeftOutError(self.left_out(what, n))
        begun = time.perf_counter()
        found = seconds(*runs, repeat=fit, clock=time.perf_counter)
        self._taken[what] = n, (time.perf_counter() - begun) / (fit + 1)
        return found

    def left_out(self, what: object, n: int) -> str:
        """Return why something was not measured."""
        return f"it would take about {2 * self.expected(what, n):.0f} s, and {max(self.left, 0):.0f} are left"


def free_memory() -> int:
    """Return the bytes of memory that this process may take."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 1 << 62
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 1 << 62)


@dataclass(frozen=True)
class OnDevice:
    """Values in the memory of a device, for `DeviceEvents`."""

    memory: Memory
    first: int
    length: int

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Address, type and length."""
        address = self.memory.address + 4 * self.first
        return {"version": 3, "typestr": "<f4", "shape": (self.length,), "strides": None, "data": (address, False)}


class Values:
    """Float32 columns over one array, on the host and (if it has room) on the device: column k begins at k * shift."""

    def __init__(self, n: int, device: Device | None) -> None:
        self.shift = min(SHIFT, n)
        self.values = np.empty(self.size(n), np.float32)
        np.random.default_rng(0).random(out=self.values, dtype=np.float32)
        self.memory = None
        if device is not None:
            try:
                self.memory = uploaded(device, self.values)
            except OutOfDeviceMemory:
                self.memory = None

    @staticmethod
    def size(n: int) -> int:
        """Return the number of values below columns of `n` rows."""
        return n + 15 * min(SHIFT, n)

    def on_host(self, n: int, n_columns: int) -> pa.RecordBatch:
        """Return the first rows of some columns."""
        first = [k * self.shift for k in range(n_columns)]
        return pa.record_batch({f"x{k}": pa.array(self.values[at : at + n]) for k, at in enumerate(first)})

    def on_device(self, n: int, n_columns: int) -> pa.RecordBatch:
        """Return the same in the memory of the device."""
        columns = {f"x{k}": OnDevice(self.memory, k * self.shift, n) for k in range(n_columns)}
        return cer_gpu.DeviceEvents(columns).batch()


def uploaded(device: Device, values: np.ndarray) -> Memory:
    """Return a copy of values in the memory of a device."""
    data = values.view(np.uint8)
    memory, queue, pinned = device.allocate(len(data)), device.queue(), device.pinned(min(len(data), 1 << 26))
    for first in range(0, len(data), len(pinned)):
        piece = data[first : first + len(pinned)]
        pinned[: len(piece)] = piece
        queue.write(memory.address + first, pinned[: len(piece)])
        queue.wait()
    return memory


# ---- floors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Floors:
    """Bytes per second."""

    upload: float
    """Of copies from pinned memory to the device."""
    memory: float
    """Of the device's memory: of reads, or of reads and writes, whichever is more."""


def floor_rows(device: Device, n_bytes: int, repeat: int) -> Iterator[Row | Floors]:
    """Yield the bandwidths and the time of an empty piece of work, and last the floors of the other parts."""
    times, n = 16, n_bytes // 16
    queue, other = device.queue(), device.queue()
    there, back = device.pinned(n_bytes), device.pinned(n_bytes)
    events = np.random.default_rng(0).integers(0, 256, n_bytes, np.uint8)
    there[:], back[:] = events, 0
    source, target = device.allocate(n_bytes), device.allocate(n_bytes)
    kernels = device.compile(read_kernel_source("common.cuh") + KERNELS, ["cer_copy_pairs", "cer_read_pairs"])
    queue.write(source.address, there)
    queue.write(target.address, there)
    queue.wait()

    def upload() -> None:
        queue.write(source.address, there)
        queue.wait()

    def download() -> None:
        other.read(back, target.address)
        other.wait()

    def both() -> None:
        queue.write(source.address, there)
        other.read(back, target.address)
        queue.wait()
        other.wait()

    def run(name: str) -> None:
        for _ in range(times):
            queue.launch(kernels[name], n // 256, source.address, target.address, n)
        queue.wait()

    def nothing() -> None:
        queue.launch(kernels["cer_read_pairs"], 1, source.address, target.address, 0)
        queue.wait()

    def gather() -> None:
        np.copyto(there, events)

    runs = [upload, download, both, partial(run, "cer_read_pairs"), partial(run, "cer_copy_pairs"), gather, nothing]
    up, down, two, read, copy, gathered, empty = seconds(*runs, repeat=repeat, clock=time.perf_counter)
    assert np.array_equal(back, events)
    floors = Floors(n_bytes / up, max(times * n_bytes / read, times * 2 * n_bytes / copy))
    for name, rate in (
        ("copies from pinned memory to the device", floors.upload),
        ("copies from the device to pinned memory", n_bytes / down),
        ("both at once, on two streams", 2 * n_bytes / two),
        ("reads of the device's memory", times * n_bytes / read),
        ("reads and writes of the device's memory", times * 2 * n_bytes / copy),
        ("copies into pinned memory by one core", n_bytes / gathered),
    ):
        yield {"workload": name, "GB/s": rate / 1e9}
    yield {"workload": "one kernel that does nothing, and the wait for it", "microseconds": empty * 1e6}
    yield floors


# ---- predicates -----------------------------------------------------------------------------------------------------


class Numbered:
    """Stand-in for the symbols of an automaton: words are numbered, and that without a guard is quiet."""

    def __init__(self) -> None:
        self._symbols = {0: 0}

    def symbol(self, word: int) -> int:
        """Return the number of a word."""
        return self._symbols.setdefault(word, len(self._symbols))


def guards(n: int, n_columns: int) -> tuple[Guard, ...]:
    """Return `n` comparisons over `n_columns` columns."""
    thresholds = [1 - SHARE * (k + 1) / n / n_columns for k in range(n)]
    parsed = [parse(f"SELECT * FROM S WHERE S FILTER S[x{k % n_columns} > {x}]") for k, x in enumerate(thresholds)]
    return tuple(Guard(None, query.formula.filter.predicate) for query in parsed)  # type: ignore[union-attr]


def selecting(n: int, batch: pa.RecordBatch, device: str, block_rows: int) -> Callable[[], int]:
    """Return a function that selects the relevant events of a batch, and returns their number."""
    words = GuardEvaluator(BoundGuards(guards(n, batch.num_columns), batch.schema, None, ""), device)
    symbols = SymbolTable(Numbered(), words.bound.dtype, n)  # type: ignore[arg-type]

    def run() -> int:
        blocks = (Block(batch.slice(first, block_rows)) for first in range(0, batch.num_rows, block_rows))
        return sum(len(words.select(block, symbols)[0]) for block in words.prefetch(blocks, symbols))

    return run


def judged(row: Row, rate: float, of: float, least: float, goal: str) -> Row:
    """Return a row with its rate as a share of what the goal compares it with, the goal, and the judgement."""
    return row | {"share": rate / of, "goal": goal, "holds": "yes" if rate >= least * of else "no"}


def predicate_rows(sizes: list[int], values: Values, floors: Floors, repeat: int, budget: Budget) -> Iterator[Row]:
    """Yield the rows of the stage of predicates alone."""
    small = [n for n in sizes if n <= ONE_SIZE] or sizes[:1]
    cases = [(n, *OF_ALL_SIZES) for n in small] + [(small[-1], *case) for case in AT_ONE_SIZE]
    cases += [(n, *OF_ALL_SIZES) for n in sizes if n > small[-1]]
    for rows, n, n_columns in cases:
        named: Row = {"rows": rows, "predicates": n, "bytes of an event": 4 * n_columns}
        ways = [("host", GPU_BLOCK), ("device", GPU_BLOCK)]
        if rows > GPU_BLOCK:
            ways.append(("device", min(LARGE_BLOCK, rows)))
        what: object = "host", GPU_BLOCK, n, n_columns
        if budget.left < budget.expected(what, rows) or budget.left <= 0:
            yield {"workload": "predicates", **named, "why not": budget.left_out(what, rows)}
            continue
        on_cpu = selecting(n, values.on_host(rows, n_columns), "cpu", BLOCK_ROWS)
        expected = on_cpu()
        for where, block_rows in ways:
            row = {"workload": f"predicates, columns on the {where}", **named, "rows of a block": block_rows}
            if where == "device" and values.memory is None:
                yield row | {"why not": "the device has no room"}
                continue
            batch = (values.on_device if where == "device" else values.on_host)(rows, n_columns)
            on_gpu = selecting(n, batch, "cuda", block_rows)
            what = where, block_rows, n, n_columns
            try:
                assert on_gpu() == expected
                cpu, gpu = budget.measured(what, rows, repeat, on_cpu, on_gpu)
            except (cer_gpu.DeviceError, LeftOutError) as error:
                yield row | {"why not": str(error).partition("\n")[0]}
                continue
            n_bytes = 4 * rows * n_columns
            row |= {"CPU, million events/s": rows / cpu / 1e6, "GPU, million events/s": rows / gpu / 1e6}
            row |= {"times as fast": cpu / gpu, "GB/s": n_bytes / gpu / 1e9}
            if where == "device":
                yield judged(row, n_bytes / gpu, floors.memory, OF_DEVICE, "70% of the device's bandwidth")
            else:
                yield judged(row, n_bytes / gpu, floors.upload, OF_COPIES, "within 20% of copies")


# ---- whole queries --------------------------------------------------------------------------------------------------


def stream(n: int, values: np.ndarray) -> pa.Table:
    """Return events of nine types, C being rare, with an attribute: five bytes for each."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 8, n, np.int8)
    codes[rng.integers(0, n, ENDS)] = 8
    types = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list("ABDEFGHIC")))
    return pa.table({"type": types, "x": pa.array(values[:n])})


def taken_by_auto(query: cer_gpu.Query, events: pa.Table) -> str:
    """Return the device that "auto" would take now, with its reason."""
    evaluator = query.evaluator(device="auto", threads=1)
    evaluator.push(events.slice(0, 10).combine_chunks().to_batches()[0])
    device, reason = evaluator.placement
    return f"{device}: {reason}"


def query_rows(sizes: list[int], values: Values, repeat: int, budget: Budget) -> Iterator[Row]:
    """Yield the rows of whole queries, from events of the host: on one core, and on all."""
    table = stream(max(sizes), values.values)
    for rows in sizes:
        events = table.slice(0, rows)
        for name, text in QUERIES_BY_NAME.items():
            query = cer_gpu.compile(text)
            for threads, n_cores in ((1, 1), (None, len(os.sched_getaffinity(0)))):
                row = {"workload": name, "rows": rows, "cores": n_cores}
                run = partial(query.evaluate, events, threads=threads)
                what = name, threads
                if budget.left < 3 * budget.expected(what, rows):
                    yield row | {"why not": budget.left_out(what, rows)}
                    continue
                tried = placement.ROWS_TO_TRY + 2 * placement.ROWS_TO_MEASURE + 2 * GPU_BLOCK
                try:
                    assert run(device="cuda").equals(run(device="cpu"))
                    for _ in range(min(-(-tried // rows), 16)):
                        run(device="auto")  # until it has measured both devices
                    runs = [partial(run, device=device) for device in ("cpu", "cuda", "auto")]
                    cpu, gpu, auto = budget.measured(what, rows, repeat, *runs)
                except (cer_gpu.DeviceError, LeftOutError) as error:
                    yield row | {"why not": str(error).partition("\n")[0]}
                    continue
                row |= {"CPU, million events/s": rows / cpu / 1e6, "GPU, million events/s": rows / gpu / 1e6}
                row |= {"times as fast": cpu / gpu, "auto, million events/s": rows / auto / 1e6}
                row["auto took"] = taken_by_auto(query, events)
                yield judged(row, 1 / auto, 1 / min(cpu, gpu), OF_BETTER, "auto within 10% of the better")


# ---- all ------------------------------------------------------------------------------------------------------------


def measured(
    sizes: list[int],
    repeat: int,
    only: list[str] | None = None,
    within: float = float("inf"),
    memory: float | None = None,
    done: Callable[[Results], None] = lambda results: None,
    rules: Path = Path(),
    recorded: Path = Path(),
) -> Results:
    """Return all results, told line by line; without a GPU, that they are left out.

    Parameters
    ----------
    sizes : list of int
        Numbers of events.
    repeat : int
        Most calls of which the median is taken.
    only : list of str, optional
        Words of which the title of a part has one.
    within : float
        Seconds for all.
    memory : float, optional
        GiB of the host's memory that may be taken; None: 60% of what is free.
    done : callable
        Called with the results of each part.
    rules, recorded : Path
        As of `gpu_sets.set_rows`.
    """
    if (why := placement.missing()) is not None:
        return {TITLE: [{"workload": "left out", "why": why.partition("\n")[0]}]}
    begun, device = time.perf_counter(), placement.open_device()
    wanted = [title for title in (FLOORS, PREDICATES, QUERIES, SETS) if any(word in title for word in only or [""])]
    results: Results = {TITLE: [{"workload": f"on {device.name}"}]}
    room = memory * 2**30 if memory is not None else 0.6 * free_memory()
    fitting = [n for n in sorted(sizes) if 4 * Values.size(n) + 2 * n < room]
    for n in sorted({*sizes} - {*fitting}):
        why = f"{n:,} rows do not fit into {room / 2**30:.0f} GiB of the host"
        results[TITLE].append(told({"workload": "left out", "rows": n, "why": why}))
    if not fitting:
        return results
    n_bytes = min(1 << 29, 16 * max(fitting)) // 4096 * 4096
    floors: Floors | None = None
    found: list[Row] = []
    for row in floor_rows(device, n_bytes, repeat):
        if isinstance(row, Floors):
            floors = row
        else:
            found.append(told(row))
    assert floors is not None
    results[FLOORS] = found
    done(results)
    if SETS in wanted:
        budget = Budget(begun + within)
        times = lambda what, n, *runs: budget.measured(what, n, repeat, *runs)  # noqa: E731
        results[SETS] = list(map(told, gpu_sets.set_rows(rules, recorded, times, lambda: budget.left)))
        done(results)
    if not {PREDICATES, QUERIES} & {*wanted}:
        return results
    values = Values(max(fitting), device if PREDICATES in wanted else None)
    both = {PREDICATES, QUERIES} <= {*wanted}
    half = begun + (0.55 if both else 1.0) * within
    if PREDICATES in wanted:
        predicates.TIER = COMPILED  # on the CPU, from the first block on
        try:
            results[PREDICATES] = list(map(told, predicate_rows(fitting, values, floors, repeat, Budget(half))))
        finally:
            predicates.TIER = None
        done(results)
        values.memory = None
    if QUERIES in wanted:
        results[QUERIES] = list(map(told, query_rows(fitting, values, repeat, Budget(begun + within))))
        done(results)
    return results


def told(row: Row) -> Row:
    """Print a row as soon as it is there."""
    print("; ".join(f"{name} {cell(value)}" for name, value in row.items()), flush=True)
    return row


def main(arguments: list[str]) -> int:
    """Measure everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=list(SIZES), help="the numbers of events to measure")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is taken, if there is time")
    parser.add_argument("--only", nargs="+", metavar="PART", help="of: floors (always), predicates, queries, sets")
    parser.add_argument("--rules", type=Path, default=BESIDE / "rules" / "sigma_rules.zip", help="rules of Sigma")
    parser.add_argument("--recorded", type=Path, default=BESIDE / "data" / "windows.parquet", help="their events")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="leave out what would take longer")
    parser.add_argument("--memory", type=float, metavar="GIB", help="of the host to take (60%% of what is free)")
    parser.add_argument("--save", action="store_true", help="write gpu-<card>.json and .md, or add to them")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--commit", help="of the code, where Git cannot tell it")
    options = parser.parse_args(arguments)
    of = gpu_results.origin(options.commit) if options.save and placement.missing() is None else {}

    def done(results: Results) -> None:
        if of:
            command = ["python benchmarks/gpu.py", *arguments]
            gpu_results.keep(options.results, results, NOTES, command, of)

    results = measured(
        options.events,
        options.repeat,
        options.only,
        options.seconds,
        options.memory,
        done,
        options.rules,
        options.recorded,
    )
    for title, rows in results.items():
        print(markdown(title, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
