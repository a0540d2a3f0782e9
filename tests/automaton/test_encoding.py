"""Codes of tables: defined in one place, and distinct within a column."""

import ast
from importlib.resources import files

import numpy as np

from cer_gpu.automaton import encoding

CODES = {name for name in vars(encoding) if name.isupper()}


def test_codes_are_plain_integers_and_records_of_them():
    assert CODES
    values = [getattr(encoding, name) for name in CODES]
    records = [value for value in values if isinstance(value, np.dtype)]
    assert {type(value) for value in values if value not in records} == {int}
    assert {record[name] for record in records for name in record.names} == {np.dtype(np.int32)}


def test_no_other_module_defines_a_code():
    rooms = ("automaton", "backend", "backend.joins")
    modules = [m for room in rooms for m in files(f"cer_gpu.{room}").iterdir() if m.suffix == ".py"]
    for module in modules:
        if module.name != "encoding.py":
            names = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
            written = {n.id for n in names if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            assert not written & CODES, module.name


def test_codes_of_one_column_differ():
    assert len({encoding.UNKNOWN, encoding.STAY, encoding.DIES}) == 3
    assert encoding.EVERY != encoding.END_OF_LIST
    assert max(encoding.UNKNOWN, encoding.STAY, encoding.EVERY, encoding.END_OF_LIST, encoding.NO_STATE) < 0
    assert encoding.OUTPUT_MOVE & encoding.LAST_MOVE == 0
