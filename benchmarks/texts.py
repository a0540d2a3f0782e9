"""Sets of patterns: how fast the distinct texts of a column are read for 100, 1,000 and 10,000 patterns at once.

    .venv/bin/python benchmarks/texts.py [--events FILE.parquet --columns CommandLine,TargetObject] [--rules FILE]

Texts and patterns are generated where no files are given.  Rules are a zip archive of Sigma's YAML files, whose
patterns are asked of the columns of their names, or gzipped lines of JSON with EQL in "query", whose texts are asked of
every column.  All patterns ignore case.  Seconds are CPU seconds of the one thread that works; shown is the fastest
run, with the time to compile the patterns beside it.  "One by one" is Arrow's RE2, on a few of the patterns; the time
for all of them is extrapolated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cer_gpu.expressions.globs.compiling import Pattern
from cer_gpu.expressions.globs.glob_sets import GlobSet
from cer_gpu.expressions.string_tests import OneOfPatterns

SIZES = (100, 1_000, 10_000)
FEW = 20
WORDS = ("Windows", "System32", "Users", "Public", "AppData", "Local", "Temp", "Program Files", "Roaming", "Services")
AFFIXES = {"contains": "*{}*", "startswith": "{}*", "endswith": "*{}"}


def fastest(run: Callable[[], object], repeat: int) -> float:
    """Return the CPU seconds of the fastest of several runs."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.thread_time()
        run()
        best = min(best, time.thread_time() - begin)
    return best


def generated(n: int, rng: random.Random) -> tuple[pa.Array, list[str]]:
    """Return command lines and patterns of paths."""

    def name() -> str:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9)))

    def path() -> str:
        return "\\".join([rng.choice(WORDS) for _ in range(rng.randint(1, 4))] + [name()])

    texts = [f'"C:\\{path()}.exe" -{name()} {path()}.dll,{name()}' for _ in range(n)]
    return pa.array(texts), [f"*\\{name()}.exe" if k % 2 else f"*{path()}*-{name()}*" for k in range(max(SIZES))]


def of_sigma(archive: Path) -> Iterator[tuple[str, str]]:
    """Yield the fields and patterns of the rules of Windows in an archive, as far as its lines tell them."""
    with zipfile.ZipFile(archive) as files:
        for name in files.namelist():
            if "/windows/" not in name or not name.endswith(".yml"):
                continue
            field = form = None
            for line in files.read(name).decode().splitlines():
                head = re.match(r"\s+(?:- )?(\w+)((?:\|\w+)*):\s*(.*)$", line)
                item = re.match(r"\s+- (.+)$", line)
                if head:
                    modifiers = head[2].split("|")
                    field, form = head[1], next((AFFIXES[m] for m in modifiers if m in AFFIXES), "{}")
                    value = head[3]
                elif item and field:
                    value = item[1]
                else:
                    continue
                value = value.split(" #")[0].strip().strip("'\"")
                if value and field:
                    yield field, form.format(value.replace("[", "[[]"))  # type: ignore[union-attr]


def of_eql(lines: Path) -> Iterator[str]:
    """Yield the texts of rules in EQL."""
    with gzip.open(lines, "rt") as rules:
        for line in rules:
            for text in re.findall(r'"((?:[^"\\\n]|\\.)+)"', json.loads(line)["query"]):
                yield text.replace("\\\\", "\\").replace("[", "[[]")


def measure(name: str, texts: pa.Array, patterns: list[str], repeat: int) -> None:
    """Print the speed for sets of patterns of one column."""
    for n in sorted({min(n, len(patterns)) for n in SIZES}):
        chosen = [Pattern(pattern) for pattern in patterns[:n]]
        compiled = fastest(lambda chosen=chosen: GlobSet(chosen, True), repeat)
        of = GlobSet(chosen, True)
        found = of.find(texts)  # chooses the grams
        seconds = fastest(lambda of=of: of.find(texts), repeat)
        few = chosen[:: max(1, n // FEW)][:FEW]
        alone = [OneOfPatterns((pattern,), True) for pattern in few]
        one = fastest(lambda alone=alone: [each(texts) for each in alone], 1) / len(few)
        print(
            f"{name:18}{len(texts):>9,}{texts.nbytes / 1e6:>8.1f}{n:>9,}{1e3 * compiled:>12.0f}{1e3 * seconds:>10.1f}"
            f"{texts.nbytes / seconds / 1e6:>8.0f}{len(found.strings):>10,}{1e3 * one:>14.2f}{one * n:>14.1f}",
            flush=True,
        )


def main() -> None:
    """Measure each column."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=Path)
    parser.add_argument("--columns", default="CommandLine,ScriptBlockText,TargetObject,TargetFilename,Image")
    parser.add_argument("--rules", type=Path)
    parser.add_argument("--texts", type=int, default=100_000, help="texts to generate")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    rng = random.Random(1)
    made, patterns = generated(asked.texts if asked.events is None else 1, rng)
    by_field: dict[str, list[str]] = {}
    if asked.rules is not None and asked.rules.suffix == ".zip":
        for field, pattern in dict.fromkeys(of_sigma(asked.rules)):
            by_field.setdefault(field, []).append(pattern)
    elif asked.rules is not None:
        patterns = list(dict.fromkeys(of_eql(asked.rules)))
    for each in (patterns, *by_field.values()):
        rng.shuffle(each)
    heads = ("texts", 9), ("MB", 8), ("patterns", 9), ("compiled, ms", 12), ("read, ms", 10), ("MB/s", 8), ("pairs", 10)
    beside = ("one by one, ms", 14), ("for all, s", 14)
    print(f"{'column':18}" + "".join(f"{head:>{width}}" for head, width in (*heads, *beside)))
    if asked.events is None:
        measure("generated", made, patterns, asked.repeat)
        return
    for column in asked.columns.split(","):
        values = pq.read_table(asked.events, columns=[column])[column]
        texts = pa.array(values.unique().drop_null().to_pylist(), pa.large_string())
        measure(column, texts, by_field.get(column, patterns), asked.repeat)


if __name__ == "__main__":
    main()
