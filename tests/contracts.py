"""Contracts of kernels, read from their docstrings: arguments, dtypes, shapes, and which are written.

A line of the section Parameters of a kernel, or of the section Attributes of a group of arguments, is one of::

    name[, name] : dtype[[, dtype] or dtype], shape (dim, ...)[, or (dim, ...)][, written]
    name[, name] : int | bool | float | clock
    name : Group[, or (field, ...)][, read]

A dtype is NumPy's, or a record of `cer_gpu.automaton.encoding`, or "clock" (uint64 or float64, the same in a whole
call), or "number".  A dim is an integer, a
constant of the module, a symbol (one value in a whole call), a sum of these such as ``states + 1`` or
``2 * stacks + 1``, ``2**symbol`` for a power of two, or ``at least dim``; "or more" after it says the same.
A group may come as its first fields alone where they are named, or as the empty tuple for ``()``.
"""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
from dataclasses import dataclass

import numpy as np

import cer_gpu.backend
from cer_gpu.automaton import encoding

SCALARS = {"int", "bool", "float", "clock"}
CLOCKS = {"uint64", "float64"}
RECORDS = {made: name for name, made in vars(encoding).items() if isinstance(made, np.dtype)}
SHARED = (
    "arguments",
    "tecs",
    "listing",
    "counting",
    "evaluation",
    "chains.weighing",
    "joins.filters",
    "joins.instances",
    "products.arena",
    "products.keys",
    "products.enumeration",
    "over.window_queues",
)
"""Modules whose groups of arguments others share."""


@dataclass(frozen=True)
class Array:
    """One array: its dtypes, its possible shapes as texts of dims, and True if it is written."""

    dtypes: frozenset
    shapes: tuple
    written: bool


@dataclass(frozen=True)
class Group:
    """A named tuple of arguments, with the contracts of its fields, and the fewest of them that may come."""

    name: str
    fields: dict
    read: bool
    fewest: int


def modules():
    """Return the modules of the backend."""
    listed = pkgutil.walk_packages(cer_gpu.backend.__path__, "cer_gpu.backend.")
    found = [importlib.import_module(m.name) for m in listed]
    return [module for module in found if module.__name__ != "cer_gpu.backend.cupy_backend"]


def functions():
    """Return all compiled functions of the backend by (module, name), and the names of those that are kernels."""
    found, kernels = {}, set()
    for module in modules():
        tree = ast.parse(inspect.getsource(module))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                decorators = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
                if decorators & {"kernel", "helper"}:
                    found[module.__name__, node.name] = node
                if "kernel" in decorators:
                    kernels.add((module.__name__, node.name))
    return found, kernels


def section(doc, title):
    """Yield the entries of a section of a docstring: names, and what is said of them."""
    text = inspect.cleandoc(doc or "")
    head = f"{title}\n{'-' * len(title)}\n"
    if head not in text:
        return
    for line in text.split(head)[1].split("\n\n")[0].splitlines():
        if line and not line.startswith(" "):
            names, _, said = line.partition(" : ")
            yield [name.strip() for name in names.split(",")], said.strip()


@functools.cache
def group(name, module):
    """Return the named tuple of a name: of the module, or of those whose groups others share; None for another name."""
    shared = [importlib.import_module(f"cer_gpu.backend.{each}") for each in SHARED]
    made = next((vars(each)[name] for each in (module, *shared) if name in vars(each)), None)
    return made if isinstance(made, type) and issubclass(made, tuple) else None


def contract_of(said, module):
    """Return the contract of an argument: an Array, a Group, or the name of a kind of scalar."""
    if said in SCALARS:
        return said
    name = said.partition(", ")[0]
    made = group(name, module)
    if made is not None:
        stated = re.fullmatch(r"\w+(?:, or \((.*?),?\))?(, read)?", said)
        assert stated, said
        alone = made._fields if stated[1] is None else tuple(f.strip() for f in stated[1].split(",") if f.strip())
        assert alone == made._fields[: len(alone)], said
        home = importlib.import_module(made.__module__)
        fields = {f: contract_of(s, home) for names, s in section(made.__doc__, "Attributes") for f in names}
        return Group(name, fields, bool(stated[2]), len(alone))
    match = re.fullmatch(r"([\w, ]+?), shape (\(.*?\)(?:, or \(.*?\))*)(, written)?", said)
    assert match, f"no contract: {said!r}"
    shapes = tuple(
        tuple(d.strip() for d in dims.split(",") if d.strip()) for dims in re.findall(r"\((.*?)\)", match[2])
    )
    return Array(frozenset(re.split(", | or ", match[1])), shapes, bool(match[3]))


def contract(module_name, name):
    """Return the contracts of a kernel's arguments by their names, in the order of its docstring."""
    module = importlib.import_module(module_name)
    function = getattr(module, name)
    entries = section(function.__doc__, "Parameters")
    return {argument: contract_of(said, module) for names, said in entries for argument in names}


# ---- real calls held against a contract -----------------------------------------------------------------------------


class Mismatch(AssertionError):
    """An argument does not fit its contract."""


def check_call(module, contracts, arguments, fitting=None):
    """Hold the arguments of a call against the contracts of a kernel; return the arrays that must stay as they are.

    `fitting`: a set that remembers dtypes and shapes that fit, which need no second look.
    """
    unwritten, arrays = [], []
    for (name, made), value in zip(contracts.items(), arguments, strict=True):
        if isinstance(made, Group):
            assert len(value) in (made.fewest, len(made.fields)), name
            fields = zip(made.fields.items(), value, strict=False)
            arrays += [(name, field, inner, part, made) for (field, inner), part in fields]
        else:
            arrays.append((name, None, made, value, None))
    for name, field, made, value, of in arrays:
        if isinstance(made, Array) and (not made.written or (of is not None and of.read)):
            unwritten.append((f"{name}.{field}" if field else name, value))
    kinds = tuple(
        (value.dtype, value.shape) if isinstance(made, Array) else (type(value), getattr(value, "dtype", None))
        for _, _, made, value, _ in arrays
    )
    if fitting is None or kinds not in fitting:
        _check(module, arrays)
        if fitting is not None:
            fitting.add(kinds)
    return unwritten


def _check(module, arrays):
    """Hold arguments, taken out of their groups, against their contracts."""
    bound, waiting = {}, []
    for name, field, made, value, of in arrays:
        where = f"{name}.{field}" if field else name
        if isinstance(made, str):
            _check_scalar(where, made, value, bound)
            continue
        _check_dtype(where, made, value, bound)
        home = module if of is None else importlib.import_module(group(of.name, module).__module__)
        waiting.append((where, made, value, home))
    # dims whose symbols are known last come first where they can be solved
    for exact in (True, False):
        for where, made, value, home in waiting:
            if not any(_fits(dims, value.shape, home, bound, exact) for dims in made.shapes):
                raise Mismatch(f"{where} has shape {value.shape}, not {made.shapes}, with {bound}")


def _check_scalar(where, made, value, bound):
    kinds = {"int": (int, np.integer), "bool": (bool, np.bool_), "float": (float, np.floating)}
    if made == "clock":
        _bind_clock(where, np.asarray(value).dtype.name, bound)
    elif not isinstance(value, kinds[made]):
        raise Mismatch(f"{where} is {type(value).__name__}, not {made}")


def _check_dtype(where, made, value, bound):
    dtype = RECORDS.get(value.dtype, value.dtype.name)
    if "clock" in made.dtypes:
        _bind_clock(where, dtype, bound)
    elif "number" in made.dtypes:
        if value.dtype.kind not in "iuf":
            raise Mismatch(f"{where} is {dtype}, not a number")
    elif dtype not in made.dtypes:
        raise Mismatch(f"{where} is {dtype}, not {set(made.dtypes)}")


def _bind_clock(where, dtype, bound):
    if dtype not in CLOCKS or bound.setdefault("clock", dtype) != dtype:
        raise Mismatch(f"{where} is {dtype}, and clocks of this call are {bound.get('clock')}")


def _fits(dims, shape, home, bound, exact):
    if len(dims) != len(shape):
        return False
    trial = dict(bound)
    if all(_dim_fits(dim, size, home, trial, exact) for dim, size in zip(dims, shape, strict=True)):
        bound.update(trial)
        return True
    return False


def _dim_fits(dim, size, home, bound, exact):
    least = dim.startswith("at least ") or dim.endswith(" or more")
    dim = dim.removeprefix("at least ").removesuffix(" or more")
    if dim.startswith("2**"):
        symbol = dim
        if size & (size - 1):
            return False
        return bound.setdefault(symbol, size) == size
    rest, unknown = size, []
    for times, name in _terms(dim):
        value = _value(name, home, bound)
        if value is None:
            unknown.append((times, name))
        else:
            rest -= times * value
    if least:
        return exact or (not unknown and rest >= 0) or bool(unknown)
    if not unknown:
        return rest == 0
    if len(unknown) > 1:
        return exact
    ((times, name),) = unknown
    if rest % times or rest // times < 0:
        return False
    bound[name] = rest // times
    return True


@functools.cache
def _terms(dim):
    """Return the terms of a sum, each as a factor and a name or number."""
    terms = []
    for sign, text in re.findall(r"(^|[+-])\s*([^+-]+)", dim):
        factor, _, name = text.strip().rpartition(" * ")
        terms.append((int(factor or 1) * (-1 if sign == "-" else 1), name.strip()))
    return terms


def _value(name, home, bound):
    if name.isdigit():
        return int(name)
    if name in bound:
        return bound[name]
    constant = getattr(home, name, None) if name.isupper() else None
    return constant if isinstance(constant, int) else None


# ---- what a function writes, by its source ---------------------------------------------------------------------------


def fields_written(writes, name, made):
    """Return the fields of a group that a kernel writes to, given what `written_by` tells of it."""
    written = {each[1] for each in writes if each[0] == name and len(each) == 2}
    return {list(made.fields)[field] if isinstance(field, int) else field for field in written}


def written_by(found):
    """Return for each compiled function the arguments that its source writes to.

    An argument is ("name",), or for a field of a group ("name", "field") or its number in place of its name.
    """
    writes = {key: set() for key in found}
    changed = True
    while changed:
        changed = False
        for key, node in found.items():
            new = _writes(key, node, found, writes)
            if new - writes[key]:
                writes[key] |= new
                changed = True
    return writes


def _writes(key, node, found, writes):
    module = importlib.import_module(key[0])
    names = [argument.arg for argument in node.args.args]
    places = {name: (name,) for name in names}  # local names of arguments and of their fields

    def place(expression):
        if isinstance(expression, ast.Name):
            return places.get(expression.id)
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            base = places.get(expression.value.id)
            return (base[0], expression.attr) if base and len(base) == 1 else None
        if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
            base = place(expression.value)
            return (base[0], expression.slice.value) if base and len(base) == 1 else None
        return None

    new = set()
    for each in ast.walk(node):
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AugAssign) else []
        )
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            values = (
                each.value.elts if isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple) else [each.value]
            )
            for part, value in zip(parts, values, strict=False):
                if isinstance(part, ast.Subscript):
                    if (at := place(part.value)) is not None:
                        new.add(at)
                elif isinstance(part, ast.Name) and isinstance(each, ast.Assign):
                    wrapped = isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Starred)
                    at = place(value.args[0].value) if wrapped else place(value)
                    if at is not None:
                        places[part.id] = at
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            called = _called(each.func, module, found)
            if called is None:
                continue
            inner = [argument.arg for argument in found[called].args.args]
            for argument, name in zip(each.args, inner, strict=False):
                at = place(argument)
                for written in writes[called]:
                    if at is not None and written[0] == name:
                        new.add(at if len(written) == 1 or len(at) == 2 else (at[0], written[1]))
    return new


def _called(function, module, found):
    if isinstance(function, ast.Name):
        made = getattr(module, function.id, None)
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        made = getattr(getattr(module, function.value.id, None), function.attr, None)
    else:
        return None
    made = getattr(made, "py_func", made)
    key = (getattr(made, "__module__", None), getattr(made, "__name__", None))
    return key if key in found else None
