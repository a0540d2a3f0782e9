"""Promises of the repository: light imports, short modules, small folders, plain docstrings, no package index."""

import ast
import functools
import gc
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST = 600
MAX_MODULES = 24
# a docstring begins with a verb or a noun: none of these, which begin a question, or part of a sentence
NO_OPENERS = {"What", "Whether", "Where", "Which", "How", "Of", "So", "That", "Those", "This", "It", "None"}
# nor does a sentence of it begin with one of these
NO_SENTENCES = {"What", "Whether", "Where", "Which", "How", "Of", "So"}
# conditions read "or None if ..."
NO_PHRASES = re.compile(r"\bNone: (?:there|it|no|all|they)\b|\b[Cc]omplex events\b|\b[Ff]ilters? between events\b")
MAX_MODULES_OF_A_NAME = 2
MAX_MODULES_OF_A_PRIVATE_NAME = 3
# private functions, classes and methods that more modules define, with the reason
PRIVATE_NAMES = {
    "_repr_html_": "the method that notebooks call",
    **dict.fromkeys(
        ["_drop_unreachable", "_lengthen_buffers", "_loop_arguments", "_reserve_memory", "_run_loop"],
        "an abstract method of runtime.joining.Joining, and its three runtimes",
    ),
}
MAX_SHARED_NAMES = 25
# public names that are defined in two modules or more, with the reason
SHARED_NAMES = {
    **dict.fromkeys(
        ["And", "Comparison", "Or"],
        "a node of the language as written (ceql.syntax), and the same bound to the types of columns (expressions)",
    ),
    **dict.fromkeys(
        ["remainder", "widened"],
        "an operator over arrays (expressions.numbers), and over one row in compiled code (backend.operations)",
    ),
    **dict.fromkeys(
        ["fit", "forecast"],
        "forecasts of frames of pandas and Polars (frames.forecasting), and of DataFrames of Spark (spark_glue)",
    ),
    **dict.fromkeys(
        ["recognises", "records"],
        "of a format of logs: one of its first bytes, and the reader of its records (io.logs)",
    ),
    "Value": "of a field of a record of a log (io.logs.records), and of a term (expressions.terms)",
    "PASSES": "the passes of one language, from its text to what is evaluated",
    "Argument": "of an atom of a conjunctive query, and of a filter between events: the room says which",
    "FUNCTIONS": "functions by their names: those of other languages with hints, and those of this one",
    "Rows": "rows of a block: a truth for each (inputs), and rows of partial matches (recent.pending)",
    "Words": "the bits of the predicates of each event: on the CPU (symbols), and on a GPU (cuda.words)",
    "analyse": "the public verb over CEQL alone, and over CEQL or SQL",
    "explain": "the public verb: over a plan, a frame, and a job on Spark",
    "load": "the public verb: the rules of a folder, compiled, and those of Sigma as texts",
    "main": "the entry point of each command line",
    "match": "the public verb: over a frame, and over a DataFrame of Spark",
    "read_plan": "one function for classic Spark and one for Spark Connect: one is imported in place of the other",
    "string_columns": "columns of texts: of a schema, and among side columns",
}
# words that lost (docs/contributing/glossary.md), with the names that may keep them
LOST_WORDS: dict[str, set[str]] = {
    word: set()
    for word in (
        "against answer answers asked deal dealing deals dealt fewest moment moments pasts room rooms told".split()  # noqa: SIM905
    )
}
# words that say what was done to a thing, which are no name for it; of others they may be a part
NO_PROSE = [r"\bmoments?\b", r"\b(are|is|be) told\b", r"\bdealt?\b", r"(?-i:\bpasts?\b)", r"\broom\b", r"\banswers?\b"]
NO_NAMES = ["asked", "found", "given", "held", "kept", "known", "made", "most", "told"]
# in two parts, so that this file does not hold them
INDEX_HOSTS = ["pypi" + ".org", "pypi" + ".python", "python" + "hosted", "npmjs" + ".org"]


def test_importing_the_package_loads_nothing_heavy_and_the_command_line_of_spark_needs_no_pyspark():
    code = """
import sys, cer_gpu
print(sorted({"cupy", "pyspark", "pandas"} & set(sys.modules)))
sys.modules["pyspark"] = None
import spark_glue.cli
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_modules_are_short():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for package in ("cer_gpu", "spark_glue")
        for path in (ROOT / package).rglob("*.py")
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def folders():
    """The folders of the package that hold modules, with the names of these."""
    found = {}
    for path in (ROOT / "cer_gpu").rglob("*.py"):
        found.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path.name)
    return found


def test_folders_hold_few_modules():
    assert folders()
    assert {name: len(modules) for name, modules in folders().items() if len(modules) > MAX_MODULES} == {}


def test_the_map_names_every_package():
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    rooms = [f"{name}/" for name in folders() if name != "cer_gpu"]
    rooms += [f"cer_gpu/{module}" for module in folders()["cer_gpu"] if module != "__init__.py"]
    assert [room for room in rooms if f"| `{room}` |" not in page] == []


OPERATORS = (
    "test of text",
    "operator on numbers",
    "function of one event",
    "OVER aggregate",
    "format of files",
    "option of an evaluation",
)
MAX_FILES = 3


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_new_operator_touches_few_files(kind):
    page = (ROOT / "docs" / "contributing" / "recipes.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {kind}"))
    named = re.findall(r"`([a-z_/]+\.(?:py|lark|cuh))`", line.split("|")[2])
    files = [ROOT / name if name.startswith("kernels/") else ROOT / "cer_gpu" / name for name in named]
    assert files
    assert all(file.is_file() for file in files)
    assert len(files) <= MAX_FILES


@functools.cache
def tree_of(path):
    """Return the tree of a module, which several tests walk.

    Python's search for cycles of garbage, which would pass over all trees again and again, waits meanwhile.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


@functools.cache
def nodes_of(path):
    """Return all nodes of a module."""
    return list(ast.walk(tree_of(path)))


@functools.cache
def docstrings(path):
    """Return the line and the text of each docstring, those of constants and attributes included."""
    constants = [node for node in nodes_of(path) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return [
        (node.lineno, inspect.cleandoc(node.value.value)) for node in constants if isinstance(node.value.value, str)
    ]


def first_words(text):
    """Yield the first word of each sentence; a paragraph, an item and an indented description begin one."""
    before = ""
    for line in text.splitlines():
        indented = len(line) - len(line.lstrip(" -")) > len(before) - len(before.lstrip(" -"))
        begins = not before.strip() or before.rstrip().endswith((".", "!", "?")) or indented or line[:2] == "- "
        pattern = r"(?:[.!?]\s+|^[\s-]*)(\w+)" if begins else r"[.!?]\s+(\w+)"
        yield from re.findall(pattern, line)
        before = line


def test_first_words_are_those_of_sentences_items_and_descriptions():
    text = "One of\nSo many.  Two? Three\n\nFour\n----\nfive\n    Of them.\n\n- Six: so\n  What\n- So\n"
    assert list(first_words(text)) == ["One", "Two", "Three", "Four", "Of", "Six", "So"]


MODULES = [path for package in ("cer_gpu", "spark_glue") for path in (ROOT / package).rglob("*.py")]


def test_docstrings_begin_with_a_verb_or_a_noun_and_say_or_none_if():
    assert len(MODULES) > 50
    found = []
    for path in MODULES:
        for line, text in docstrings(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            found += [f"{where}: {word} ..." for word in re.findall(r"\A\w+", text) if word in NO_OPENERS]
            found += [f"{where}: {word} ..." for word in first_words(text) if word in NO_SENTENCES]
            found += [f"{where}: {phrase} ..." for phrase in NO_PHRASES.findall(text)]
    assert found == []


def private_definitions(path):
    """Return the private functions, classes and methods of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = {node.name for node in nodes_of(path) if isinstance(node, kinds)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


@functools.cache
def modules_by(names_of):
    """Return the modules that have a name, by name."""
    modules = {}
    for path in MODULES:
        for name in names_of(path):
            modules.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    return modules


def test_a_private_name_has_few_meanings():
    modules = modules_by(private_definitions)
    assert modules
    shared = {name: paths for name, paths in modules.items() if len(paths) > MAX_MODULES_OF_A_PRIVATE_NAME}
    assert {name: paths for name, paths in shared.items() if name not in PRIVATE_NAMES} == {}
    assert sorted(PRIVATE_NAMES.keys() - shared.keys()) == []


def test_a_module_name_is_used_at_most_twice():
    modules = modules_by(lambda path: {path.stem} - {"__init__", "__main__"})
    assert modules
    assert {name: paths for name, paths in modules.items() if len(paths) > MAX_MODULES_OF_A_NAME} == {}


def names_made_in(path):
    """Return the names of functions, classes, parameters, variables and attributes that a module makes."""
    names = set()
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def words_of(name):
    """Return the words of an identifier in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def test_words_of_a_name_are_split_at_underscores_and_capitals():
    assert words_of("_MAX_PastTexts") == ["max", "past", "texts"]


@pytest.mark.parametrize("word", LOST_WORDS)
def test_no_name_is_made_of_a_word_that_lost(word):
    modules = {name: paths for name, paths in modules_by(names_made_in).items() if word in words_of(name)}
    assert {name: paths for name, paths in modules.items() if name not in LOST_WORDS[word]} == {}
    assert sorted(LOST_WORDS[word] - modules.keys()) == []


@pytest.mark.parametrize("word", NO_NAMES)
def test_no_name_is_a_participle_alone(word):
    modules = {name: paths for name, paths in modules_by(names_made_in).items() if name.strip("_").lower() == word}
    assert modules == {}


@pytest.mark.parametrize("word", NO_PROSE)
def test_no_docstring_has_a_word_that_lost(word):
    found = []
    for path in MODULES:
        for line, text in docstrings(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            found += [f"{where}: {each.strip()}" for each in text.splitlines() if re.search(word, each, re.IGNORECASE)]
    assert found == []


def public_names(path):
    """Yield the public functions, classes and constants of a module, without the indexes that `range` numbers."""
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            numbered = isinstance(node.value, ast.Call) and isinstance(targets[0], ast.Tuple)
            names = [] if numbered else [each.id for t in targets for each in ast.walk(t) if isinstance(each, ast.Name)]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def test_public_names_are_those_that_a_module_defines(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import a\nA = _B = 1\nC, D = 1, 2\nE, F = range(2)\ng: int = 3\nclass H:\n    I = 1\ndef j():\n    k = 1\n"
    )
    assert list(public_names(path)) == ["A", "C", "D", "g", "H", "j"]


def test_few_public_names_are_defined_in_two_modules_and_each_for_a_reason():
    modules = {}
    for package in ("cer_gpu", "spark_glue"):
        for path in (ROOT / package).rglob("*.py"):
            for name in set(public_names(path)):
                modules.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    shared = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in SHARED_NAMES} == {}
    assert sorted(SHARED_NAMES.keys() - shared.keys()) == []
    assert len(shared) < MAX_SHARED_NAMES


def test_no_file_names_a_package_index():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of tracked files")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]
    assert files
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in files
        if b"\0" not in (content := path.read_bytes())
        for host in INDEX_HOSTS
        if host.encode() in content.lower()
    ]
    assert found == []


def test_the_package_has_every_folder():
    """A checkout hides one that is missing; an installed package fails."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in ("cer_gpu", "spark_glue")
        for path in (ROOT / package).rglob("__init__.py")
        if "plugin" not in path.parts
    }
    elsewhere = {f"sigma.{kind}{name}" for kind in ("backends", "pipelines") for name in ("", ".cer_gpu")}
    assert {*settings["tool"]["setuptools"]["packages"]} == folders | elsewhere | {"cer_gpu.kernels"}


def imports_of(path, module, modules):
    """Yield the modules among `modules` that a module imports, wherever in its file, also for type checkers alone.

    ``from a import b`` imports ``a.b`` if that is a module, else ``a``.  That ``a.b`` runs ``a/__init__.py`` does not
    count: such files bring together what is below them.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for each in node.names:
                yield from [name for name in (f"{base}.{each.name}", base) if name in modules][:1]


def import_circles(root, packages):
    """Return the modules of packages that reach themselves by imports, those of each circle together."""
    files = {}
    for package in packages:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    imported = {name: set(imports_of(path, name, files)) for name, path in files.items()}

    def reached(name):
        found, ahead = set(), [name]
        while ahead:
            new = imported[ahead.pop()] - found
            found |= new
            ahead += new
        return found

    reachable = {name: reached(name) for name in files}
    circles = {frozenset(other for other in reachable[name] if name in reachable[other]) for name in files}
    return sorted(map(sorted, circles - {frozenset()}))


def test_circles_of_imports_are_found_wherever_they_are_hidden(tmp_path):
    texts = {
        "__init__": "from p.a import A\nfrom p.g import G",  # of what is below it
        "a": "from p import b",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.c import C",
        "c": "def f():\n    from .a import A",
        "d": "import p.e\nimport p.a",
        "e": "from p.sub.f import F",
        "g": "import p.g",
        "sub/__init__": "",
        "sub/f": "from ..e import E",
        "sub/h": "from . import f\nimport json\nfrom elsewhere import e",
    }
    (tmp_path / "p" / "sub").mkdir(parents=True)
    for name, text in texts.items():
        (tmp_path / "p" / f"{name}.py").write_text(text + "\n")
    assert import_circles(tmp_path, ["p"]) == [["p.a", "p.b", "p.c"], ["p.e", "p.sub.f"], ["p.g"]]


def test_no_modules_import_each_other():
    assert import_circles(ROOT, ["cer_gpu", "spark_glue"]) == []
