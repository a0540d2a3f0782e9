"""Make pictures/architecture.svg: the packages of cer_gpu, their imports, and the way of one query through them.

    .venv/bin/python docs/make_architecture.py          # writes docs/pictures/architecture.svg
    .venv/bin/python docs/make_architecture.py --check  # exit code 1 where the picture is out of date

Layers are those of the import contract in pyproject.toml; modules and imports are read from the sources by grimp, which
import-linter brings.  The picture is the same for the same sources.  `--check` lets the numbers of lines be off by a
fifth, so that not every change of a module makes the picture anew.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).parent / "pictures" / "architecture.svg"
PACKAGE, GLUE = "cer_gpu", "spark_glue"
OFF = 0.2
"""The part by which a number of lines in the picture may differ from that of the sources."""

COMPILING = [
    ("query", "compile(text)"),
    ("ceql.parser", "parse and check"),
    ("planning.passes", "passes"),
    ("automaton.cea", "automaton"),
    ("planning.physical", "physical plan"),
]
EVALUATING = [
    ("query", "evaluate(events)"),
    ("io.sources", "batches"),
    ("order.sorting", "order of time"),
    ("engine.execution_group", "pipeline"),
    ("columnar.columns", "blocks"),
    ("predicates.guards", "guards to symbols"),
    ("partition.partitions", "keys to ids"),
    ("runtime.protocol", "partial matches"),
    ("backend.evaluation", "kernels"),
    ("output.outputs", "rows"),
    ("query", "table"),
]
"""The stops of a query: the module in which each happens, and what happens there."""

WIDTH, HEAD, ROW = 900, 64, 34
BOX_LEFT, BOX_WIDTH, BOX_HEIGHT = 96, 262, 26
STOPS_LEFT, STOPS_RIGHT = 392, 872

LIGHT = {
    "paper": "#ffffff",
    "band": "#f1f5f9",
    "box": "#ffffff",
    "edge": "#94a3b8",
    "ink": "#0f172a",
    "faint": "#475569",
    "first": "#1d4ed8",
    "second": "#b45309",
}
DARK = {
    "paper": "#0d1117",
    "band": "#161d29",
    "box": "#1e293b",
    "edge": "#64748b",
    "ink": "#e6edf3",
    "faint": "#9fb0c5",
    "first": "#6ea8ff",
    "second": "#f0a04b",
}
STYLE = """\
text { font-family: Helvetica, Arial, sans-serif; font-size: 12px }
.room { font-size: 13.5px; font-weight: bold }
.import, .way { fill: none }
.way { stroke-width: 2 }
.label { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round }
.number { font-size: 11px; font-weight: bold; text-anchor: middle }
"""
COLORS = """\
text { fill: $faint }
.paper, .number { fill: $paper }
.band { fill: $band }
.box { fill: $box; stroke: $edge }
.room, .label { fill: $ink }
.label { stroke: $paper }
.import { stroke: $edge }
.head { fill: $edge }
.way.first { stroke: $first }
.way.second { stroke: $second }
.stop.first { fill: $first }
.stop.second { fill: $second }
"""


@dataclass(frozen=True)
class Room:
    """A folder of cer_gpu, or a module beside the folders."""

    name: str
    layer: int
    n_modules: int
    n_lines: int

    @property
    def title(self) -> str:
        """The name as the tree shows it."""
        if self.name == GLUE:
            return f"{GLUE}/"
        return f"{self.name}/" if (ROOT / PACKAGE / self.name).is_dir() else f"{self.name}.py"

    @property
    def figures(self) -> str:
        """How large it is."""
        modules = "1 module" if self.n_modules == 1 else f"{self.n_modules} modules"
        return f"{modules}, {self.n_lines if self.n_lines < 100 else round(self.n_lines, -2):,} lines"


def main(arguments: list[str]) -> int:
    """Write the picture, or check the one that is there; return the exit code."""
    picture = draw(read_graph())
    if arguments != ["--check"]:
        PICTURE.write_text(picture, encoding="utf-8")
        return 0
    found = PICTURE.read_text(encoding="utf-8") if PICTURE.exists() else ""
    if is_up_to_date(found, picture):
        return 0
    print(f"{PICTURE} is not what the sources give: run python docs/make_architecture.py", file=sys.stderr)
    return 1


def is_up_to_date(found: str, expected: str) -> bool:
    """Return whether two pictures are the same, but for numbers of lines that are off by a fifth."""
    lines = re.compile(r"([\d,]+) lines")
    if lines.sub("", found) != lines.sub("", expected):
        return False
    pairs = zip(lines.findall(found), lines.findall(expected), strict=True)
    numbers = [(int(old.replace(",", "")), int(new.replace(",", ""))) for old, new in pairs]
    return all(abs(old - new) <= max(OFF * new, 100) for old, new in numbers)


# ---- rooms and imports --------------------------------------------------------------------------------------------


def read_graph() -> grimp.ImportGraph:
    """Return the import graph of the sources beside this script."""
    sys.path.insert(0, str(ROOT))
    try:
        return grimp.build_graph(PACKAGE, GLUE, cache_dir=None)
    finally:
        sys.path.remove(str(ROOT))


def layers() -> list[list[str]]:
    """Return the layers of the import contract, the highest first; the rooms of one layer do not know each other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def room_of(module: str) -> str | None:
    """Return the room of a module; None for the package itself."""
    package, *rest = module.split(".")
    return GLUE if package == GLUE else rest[0] if rest else None


def rooms(graph: grimp.ImportGraph) -> list[Room]:
    """Return the rooms, the highest first."""
    found = []
    for layer, names in enumerate([[GLUE], *layers()]):
        for name in names:
            folder = ROOT / GLUE if name == GLUE else ROOT / PACKAGE / name
            files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
            n_lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
            n_modules = sum(file.name != "__init__.py" for file in files)
            found.append(Room(name, layer, n_modules, n_lines))
    missing = {room_of(module) for module in graph.modules} - {room.name for room in found} - {None}
    assert not missing, f"in no layer of pyproject.toml: {missing}"
    return found


def imports(graph: grimp.ImportGraph) -> set[tuple[str, str]]:
    """Return which room imports which, without those that a way through other rooms implies."""
    direct: dict[str, set[str]] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            source, target = room_of(module), room_of(imported)
            if source is not None and target is not None and source != target:
                direct.setdefault(source, set()).add(target)
    reached = {room: _reached(direct, room) for room in direct}
    return {
        (room, target)
        for room, targets in direct.items()
        for target in targets
        if not any(target in reached.get(other, ()) for other in targets - {target})
    }


def _reached(direct: dict[str, set[str]], room: str) -> set[str]:
    reached: set[str] = set()
    ahead = list(direct[room])
    while ahead:
        target = ahead.pop()
        if target not in reached:
            reached.add(target)
            ahead += direct.get(target, ())
    return reached


# ---- the picture --------------------------------------------------------------------------------------------------


def draw(graph: grimp.ImportGraph) -> str:
    """Return the picture as SVG."""
    for module, _ in COMPILING + EVALUATING:
        assert f"{PACKAGE}.{module}" in graph.modules, f"no module {PACKAGE}.{module}: where does this happen now?"
    every = rooms(graph)
    rows = {room.name: HEAD + ROW * i + ROW / 2 for i, room in enumerate(every)}
    height = HEAD + ROW * len(every) + 10
    light, dark = (Template(COLORS).substitute(colors) for colors in (LIGHT, DARK))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img">',
        "<title>The packages of cer_gpu by layers, and the way of one query through them</title>",
        f"<style>\n{STYLE}{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        *_legend(),
        *(_band(room, rows) for room in every if room.layer % 2),
        *(_import(rows[source], rows[target]) for source, target in sorted(imports(graph))),
        *(part for room in every for part in _box(room, rows)),
        *_way(rows),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> Iterator[str]:
    yield _text(BOX_LEFT, 24, "Packages, by layers: imports go down only", "room")
    yield _text(BOX_LEFT, 44, "arrows: imports, less those that others imply")
    for x, name, what in ((STOPS_LEFT, "first", "compiling a query"), (STOPS_LEFT + 170, "second", "evaluating it")):
        yield f'<rect class="stop {name}" x="{x}" y="38" width="16" height="4"/>'
        yield _text(x + 24, 44, what)


def _band(room: Room, rows: dict[str, float]) -> str:
    return f'<rect class="band" x="0" y="{rows[room.name] - ROW / 2:g}" width="{WIDTH}" height="{ROW}"/>'


def _box(room: Room, rows: dict[str, float]) -> Iterator[str]:
    y = rows[room.name]
    size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"'
    yield f'<rect class="box" x="{BOX_LEFT}" y="{y - BOX_HEIGHT / 2:g}" {size}/>'
    yield _text(BOX_LEFT + 12, y + 4.5, room.title, "room")
    yield _text(BOX_LEFT + BOX_WIDTH - 10, y + 4.5, room.figures, anchor="end")


def _import(source: float, target: float) -> str:
    """Draw an import: from the lower part of a box to the upper part of one below, on the left of both."""
    begin, end, right = source + 5, target - 5, BOX_LEFT - 1
    left = right - min(12 + 2.6 * (end - begin) / ROW * 2, 88)
    curve = f"M{right} {begin:g}C{left:.1f} {begin:g} {left:.1f} {end:g} {right - 6} {end:g}"
    tip = f"{right},{end:g} {right - 7},{end - 3.5:g} {right - 7},{end + 3.5:g}"
    return f'<path class="import" d="{curve}"/><polygon class="head" points="{tip}"/>'


def _way(rows: dict[str, float]) -> Iterator[str]:
    """Draw the stops of a query from left to right, each at its room."""
    stops = [(module, label, "first") for module, label in COMPILING]
    stops += [(module, label, "second") for module, label in EVALUATING]
    step = (STOPS_RIGHT - STOPS_LEFT) / (len(stops) - 1)
    places = [(STOPS_LEFT + i * step, rows[module.split(".")[0]]) for i, (module, _, _) in enumerate(stops)]
    bend = step * 0.6
    for (x, y), (next_x, next_y), (_, _, name), (_, _, next_name) in _pairs(places, stops):
        if name == next_name:
            curve = f"M{x:.1f} {y:g}C{x + bend:.1f} {y:g} {next_x - bend:.1f} {next_y:g} {next_x:.1f} {next_y:g}"
            yield f'<path class="way {name}" d="{curve}"/>'
    for i, ((x, y), (_, label, _)) in enumerate(zip(places, stops, strict=True)):
        onward = places[i + 1][1] if i + 1 < len(places) else y - 1
        # beside the line that goes on: above where it goes down, below where it goes up
        at = y - 5 if onward > y else y + 13
        is_last = i == len(stops) - 1
        yield _text(x - 12 if is_last else x + 12, at, label, "label", "end" if is_last else "start")
    for i, ((x, y), (_, _, name)) in enumerate(zip(places, stops, strict=True), 1):
        yield f'<circle class="stop {name}" cx="{x:.1f}" cy="{y:g}" r="8.5"/>' + _text(x, y + 4, str(i), "number")


def _pairs(places: list[tuple[float, float]], stops: list[tuple[str, str, str]]) -> Iterable[tuple[tuple, ...]]:
    return zip(places, places[1:], stops, stops[1:], strict=False)


def _text(x: float, y: float, text: str, name: str = "", anchor: str = "start") -> str:
    named = f' class="{name}"' if name else ""
    anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{named} x="{x:.1f}" y="{y:g}"{anchored}>{text}</text>'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
