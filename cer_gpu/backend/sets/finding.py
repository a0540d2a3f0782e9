"""Rows of the guards of many queries: 64 rows at a time, and of each guard only where one of its triggers holds.

A guard is data: steps over lines of bits, a line for each test (`cer_gpu.predicates.cuda.set_steps`).  No guard holds
of a row unless one of its triggers does, which are lines chosen to be rare.  The work for a row is that for the
lines that hold of it, and for the guards that it nearly satisfies, whatever their number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.sets.loads import (
    bit_at,
    bits_of,
    load_f4,
    load_f8,
    load_i1,
    load_i2,
    load_i4,
    load_i8,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
)

PUSH, PUSH_ALL, PUSH_NONE, AND_LINE, OR_LINE, AND_NOT_LINE, AND, OR = range(8)
"""Steps, as `kernels/guard_sets.cu` has them."""

MAX_ON_STACK = 16
"""CER_STACK of `kernels/guard_sets.cu`."""

STORED, VALUES, STEP, FIRST, VALID, FIRST_VALID, CONSTANTS, N_CONSTANTS, CLASSES, N_OF_NUMBERS = range(10)
"""Entries that describe a column of numbers: the place of its layout in `cer_gpu.expressions.terms.STORED`, the address
of its values, the values to a row, the first bit (of packed bits), the address of validity bits (0: all are valid) and
the first of these, its constants among those of all columns, their number, and its classes."""

I1, I2, I4, I8, U1, U2, U4, U8, F4, F8, BIT = range(11)

IS_LESS, IS_EQUAL, IS_GREATER = 1, 2, 4
"""Outcomes of a comparison, as bits."""

ALWAYS = np.float32(np.inf)
"""Weight of a line that is no trigger."""

_U = np.uint64
_TOP = 1 << 63
_INFINITY = 0x7FF0000000000000


class GuardSteps(NamedTuple):
    """Guards as steps, and what triggers them.

    Attributes
    ----------
    begins : int32, shape (guards + 1,)
    steps : int32, shape (steps,)
        A step in the lowest three bits, and above them the number of a line.
    trigger_begins : int32, shape (lines + 1,)
    triggered : int32, shape (triggers,)
        Guards that each line triggers.
    always : int32, shape (guards always tested,)
        Guards without triggers.
    """

    begins: Any
    steps: Any
    trigger_begins: Any
    triggered: Any
    always: Any


class NumberTests(NamedTuple):
    """Tests of numbers.

    Attributes
    ----------
    columns : int64, shape (columns, N_OF_NUMBERS)
    constants : uint64, shape (constants,)
        Constants of each column, ascending, as `_key` gives them.
    class_begins : int32, shape (classes + 1,)
        For each column, classes of numbers: ``2 * i + 1`` equals constant i, ``2 * i`` is less than it and greater than
        those before; the last one is that of NaN.
    class_lines : int32, shape (lines of classes,)
        Lines of the tests that numbers of each class satisfy, without those that are tested when they are read.
    read : int64, shape (lines of numbers, 4)
        For each line that is tested when it is read: its column, the outcomes that hold, whether it holds of NaN, and
        1; 0 in place of the last for other lines.
    read_constants : uint64, shape (lines of numbers,)
    validity : int64, shape (columns of validity, 4)
        For each column whose validity is tested: address and first bit, and lines of valid and of other rows, or -1.
    """

    columns: Any
    constants: Any
    class_begins: Any
    class_lines: Any
    read: Any
    read_constants: Any
    validity: Any


class PassMemory(NamedTuple):
    """PassMemory of a pass, whose contents stay from call to call.

    Attributes
    ----------
    bits : uint64, shape (lines,), written
        All 0 between calls, but for lines that are tested when they are read.
    touched : int32, shape (lines + 1,), written
    read_at : int64, shape (lines,), written
        Serial number of the word for which a line was tested.
    tested_at : int64, shape (guards,), written
        Serial number of the word for which a guard was tested.
    counts : int64, shape (lines,), written
        Rows so far of which each line held.
    stack : uint64, shape (MAX_ON_STACK + 1,), written
    keys : uint64, shape (column capacity, 64), written
    valid : uint64, shape (column capacity, 2), written
        Rows that are not NULL, and those that are NaN.
    serial : int64, shape (1,), written
    """

    bits: Any
    touched: Any
    read_at: Any
    tested_at: Any
    counts: Any
    stack: Any
    keys: Any
    valid: Any
    serial: Any


@kernel
def find_rows(steps, numbers, classes, list_begins, lists, begin, end, first, memory, guards, rows, n_pairs):
    """Find the rows of guards.

    Parameters
    ----------
    steps : GuardSteps
    numbers : NumberTests
    classes : int32, shape (columns of strings, at least end - begin)
        Classes of strings (`cer_gpu.backend.string_codes.coding`).
    list_begins : int64, shape (string capacity,)
    lists : int32, shape (line capacity,)
        Lines that hold of each string.
    begin, end : int
        Rows to read; the first is that of the first class.
    first : int
        Row to continue at, a multiple of 64 after `begin`.
    memory : PassMemory
    guards, rows : int32, shape (capacity,), written
        Guard and row of each match, the rows of a guard in ascending order.
    n_pairs : int
        Pairs so far.

    Returns
    -------
    (int, int)
        The row to continue at (`end` if all is done, else space ran out), and the number of pairs.
    """
    steps, numbers, memory = GuardSteps(*steps), NumberTests(*numbers), PassMemory(*memory)
    capacity = guards.shape[0] - 64
    for row in range(first, end, 64):
        n_rows, n_before, is_full = min(end - row, 64), n_pairs, False
        serial = memory.serial[0] + 1
        memory.serial[0] = serial
        all_rows = ~_U(0) >> _U(64 - n_rows)
        n_touched = _read_strings(classes, list_begins, lists, row - begin, n_rows, memory)
        n_touched = _read_numbers(numbers, row, n_rows, n_touched, memory)
        for k in range(numbers.validity.shape[0]):
            n_touched = _read_validity(numbers.validity[_U(k)], row, n_rows, n_touched, memory)
        for t in range(-1, n_touched):
            if t < 0:
                n_tested, of, guard_at = steps.always.shape[0], steps.always, 0
            else:
                line = memory.touched[_U(t)]
                guard_at = steps.trigger_begins[_U(line)]
                n_tested, of = steps.trigger_begins[_U(line + 1)] - guard_at, steps.triggered
            for k in range(guard_at, guard_at + n_tested):
                guard = of[_U(k)]
                if memory.tested_at[_U(guard)] == serial:
                    continue
                memory.tested_at[_U(guard)] = serial
                if n_pairs > capacity:
                    is_full = True
                    break
                word = _word_of(guard, steps, numbers, serial, n_rows, memory) & all_rows
                while word:
                    low = word & (~word + _U(1))
                    guards[_U(n_pairs)] = guard
                    rows[_U(n_pairs)] = row + _n_below(low)
                    n_pairs += 1
                    word ^= low
        for t in range(n_touched):
            line = _U(memory.touched[_U(t)])
            if not is_full:
                memory.counts[line] += np.int64(_n_bits(memory.bits[line]))
            memory.bits[line] = _U(0)
        if is_full:
            return row, n_before
    return end, n_pairs


@helper
def _n_bits(word):
    """Return the number of bits of a word that are 1."""
    word = word - (word >> _U(1) & _U(0x5555555555555555))
    word = (word & _U(0x3333333333333333)) + (word >> _U(2) & _U(0x3333333333333333))
    word = word + (word >> _U(4)) & _U(0x0F0F0F0F0F0F0F0F)
    return word * _U(0x0101010101010101) >> _U(56)


@helper
def _n_below(low):
    """Return the number of the only bit of a word."""
    return np.int64(_n_bits(low - _U(1)))


@helper
def _mark(line, bit, n_touched, memory):
    """Let a line hold of some rows; return the number of lines that hold of any."""
    word = memory.bits[_U(line)]
    memory.touched[_U(n_touched)] = line
    memory.bits[_U(line)] = word | bit
    return n_touched + (word == 0)


@helper
def _read_strings(classes, list_begins, lists, first, n_rows, memory):
    """Set the lines of the strings of some rows; return the number of lines that hold of any."""
    n_touched = 0
    for column in range(classes.shape[0]):
        for k in range(n_rows):
            string = classes[_U(column), _U(first + k)]
            if string < 0:
                continue
            bit = _U(1) << _U(k)
            for i in range(list_begins[_U(string)], list_begins[_U(string + 1)]):
                n_touched = _mark(lists[_U(i)], bit, n_touched, memory)
    return n_touched


@helper
def _read_numbers(numbers, row, n_rows, n_touched, memory):
    """Load the numbers of some rows, and set the lines of their classes."""
    for column in range(numbers.columns.shape[0]):
        of = numbers.columns[_U(column)]
        stored, values, step, first = of[STORED], _U(of[VALUES]), of[STEP], of[FIRST]
        valid, first_valid = _U(of[VALID]), of[FIRST_VALID]
        constants, n_constants, of_column = of[CONSTANTS], of[N_CONSTANTS], of[CLASSES]
        n_classes = 2 * n_constants + 2
        has_lines = numbers.class_begins[_U(of_column + n_classes)] > numbers.class_begins[_U(of_column)]
        present, nan, last, of_last = _U(0), _U(0), _U(0), -1
        for k in range(n_rows):
            if not bit_at(valid, _U(first_valid + row + k)):
                memory.keys[_U(column), _U(k)] = _U(0)
                continue
            bit = _U(1) << _U(k)
            present |= bit
            key, is_nan = _key(stored, values, _U((row + k) * step), _U(first + row + k))
            memory.keys[_U(column), _U(k)] = key
            if is_nan:
                nan |= bit
            if not has_lines:
                continue
            if is_nan:
                at = n_classes - 1
            elif of_last >= 0 and key == last:
                at = of_last
            else:
                at = _class_of(key, numbers.constants, constants, n_constants)
                last, of_last = key, at
            for i in range(numbers.class_begins[_U(of_column + at)], numbers.class_begins[_U(of_column + at + 1)]):
                n_touched = _mark(numbers.class_lines[_U(i)], bit, n_touched, memory)
        memory.valid[_U(column), 0] = present
        memory.valid[_U(column), 1] = nan
    return n_touched


@kernel
def keys_of(of, begin, end, keys):
    """Write the numbers of some rows of a column that are neither NULL nor NaN, in the order of `_key`.

    Parameters
    ----------
    of : int64, shape (N_OF_NUMBERS,)
    begin, end : int
    keys : uint64, shape (at least end - begin,), written

    Returns
    -------
    int
        Number of keys.
    """
    n = 0
    for row in range(begin, end):
        if bit_at(_U(of[VALID]), _U(of[FIRST_VALID] + row)):
            key, is_nan = _key(of[STORED], _U(of[VALUES]), _U(row * of[STEP]), _U(of[FIRST] + row))
            keys[_U(n)] = key
            n += not is_nan
    return n


@helper
def _class_of(key, constants, begin, n):
    """Return the class of a key among ascending constants."""
    low, n_left = 0, n
    while n_left > 0:
        half = (n_left + 1) // 2
        low += half * (constants[_U(begin + low + half - 1)] < key)
        n_left -= half
    equal = low < n and constants[_U(begin + low)] == key
    return 2 * low + equal


@helper
def _key(stored, values, place, bit):
    """Return a number as a uint64 in the same order, equal for equal numbers, and whether it is NaN."""
    if stored == BIT:
        return _U(bit_at(values, bit)) | _U(_TOP), False
    if stored in (F4, F8):
        number = load_f4(values + place * _U(4)) if stored == F4 else load_f8(values + place * _U(8))
        bits = _U(0) if number == 0 else bits_of(number)
        is_nan = bits & _U(_TOP - 1) > _U(_INFINITY)
        return (~bits if bits & _U(_TOP) else bits | _U(_TOP)), is_nan
    if stored == U8:
        return load_u8(values + place * _U(8)), False
    if stored == I1:
        number = load_i1(values + place)
    elif stored == I2:
        number = load_i2(values + place * _U(2))
    elif stored == I4:
        number = load_i4(values + place * _U(4))
    elif stored == I8:
        number = load_i8(values + place * _U(8))
    elif stored == U1:
        number = np.int64(load_u1(values + place))
    elif stored == U2:
        number = np.int64(load_u2(values + place * _U(2)))
    else:
        number = np.int64(load_u4(values + place * _U(4)))
    return _U(number) ^ _U(_TOP), False


@helper
def _read_validity(of, row, n_rows, n_touched, memory):
    """Set the lines of a column whose validity is tested."""
    address, first, valid_line, null_line = _U(of[0]), of[1], of[2], of[3]
    word = _U(0)
    for k in range(n_rows):
        word |= _U(bit_at(address, _U(first + row + k))) << _U(k)
    if valid_line >= 0 and word:
        n_touched = _mark(valid_line, word, n_touched, memory)
    word = ~word & ~_U(0) >> _U(64 - n_rows)
    if null_line >= 0 and word:
        n_touched = _mark(null_line, word, n_touched, memory)
    return n_touched


@helper
def _line(line, numbers, serial, n_rows, memory):
    """Return the bits of a line, which is perhaps tested now."""
    if line < numbers.read.shape[0] and numbers.read[_U(line), 3] == 1 and memory.read_at[_U(line)] != serial:
        memory.read_at[_U(line)] = serial
        of = numbers.read[_U(line)]
        column, outcomes, constant = _U(of[0]), of[1], numbers.read_constants[_U(line)]
        word = _U(0)
        for k in range(n_rows):
            key = memory.keys[column, _U(k)]
            outcome = IS_LESS if key < constant else IS_EQUAL if key == constant else IS_GREATER
            word |= _U(outcomes & outcome != 0) << _U(k)
        nan = memory.valid[column, 1]
        word = (word & ~nan) | (nan if of[2] == 1 else _U(0))
        memory.bits[_U(line)] = word & memory.valid[column, 0]
    return memory.bits[_U(line)]


@helper
def _word_of(guard, steps, numbers, serial, n_rows, memory):
    """Return the rows, as bits, that satisfy a guard; bits after the last row are arbitrary."""
    stack, depth, top = memory.stack, 0, _U(0)  # the word on top is apart from the others
    for k in range(steps.begins[_U(guard)], steps.begins[_U(guard + 1)]):
        step, line = steps.steps[_U(k)] & 7, steps.steps[_U(k)] >> 3
        if step == AND_LINE:
            if top:
                top &= _line(line, numbers, serial, n_rows, memory)
        elif step == OR_LINE:
            top |= _line(line, numbers, serial, n_rows, memory)
        elif step == AND_NOT_LINE:
            if top:
                top &= ~_line(line, numbers, serial, n_rows, memory)
        elif step in (AND, OR):
            depth -= 1
            below = stack[_U(depth)]
            top = top & below if step == AND else top | below
        else:
            stack[_U(depth)] = top
            depth += 1
            top = _line(line, numbers, serial, n_rows, memory) if step == PUSH else ~_U(0) * _U(step == PUSH_ALL)
    return top


@kernel
def choose_triggers(begins, steps, weights, stack, stack_weights, lists, trigger_begins, triggers, always):
    """Choose lines of which one holds of each row that satisfies a guard: those of the least weight together.

    Parameters
    ----------
    begins : int32, shape (guards + 1,)
    steps : int32, shape (steps,)
        As of `GuardSteps`.
    weights : float32, shape (lines,)
        `ALWAYS` for a line that is no trigger.
    stack : int64, shape (MAX_ON_STACK + 1,), written
        Begin of the list of each word on the stack.
    stack_weights : float32, shape (MAX_ON_STACK + 1,), written
    lists : int32, shape (steps of a guard,), written
    trigger_begins : int32, shape (guards + 1,), written
    triggers : int32, shape (at least steps,), written
        Lines of each guard.
    always : bool, shape (guards,), written
        True for a guard that has no triggers, and is always tested.

    Returns
    -------
    int
        Number of triggers.
    """
    n_chosen = 0
    trigger_begins[0] = 0
    for guard in range(begins.shape[0] - 1):
        depth, at = 0, 0  # the lists of the words on the stack lie one after the other
        for k in range(begins[_U(guard)], begins[_U(guard + 1)]):
            step, line = steps[_U(k)] & 7, steps[_U(k)] >> 3
            if step <= PUSH_NONE:
                stack[_U(depth)] = at
                stack_weights[_U(depth)] = (
                    weights[_U(line)] if step == PUSH else np.float32(0) if step == PUSH_NONE else ALWAYS
                )
                if step == PUSH:
                    lists[_U(at)] = line
                    at += 1
                depth += 1
            elif step == AND_LINE:
                if weights[_U(line)] < stack_weights[_U(depth - 1)]:
                    stack_weights[_U(depth - 1)] = weights[_U(line)]
                    at = stack[_U(depth - 1)]
                    lists[_U(at)] = line
                    at += 1
            elif step == OR_LINE:
                stack_weights[_U(depth - 1)] += weights[_U(line)]
                lists[_U(at)] = line
                at += 1
            elif step == AND:
                depth -= 1
                begin, middle = stack[_U(depth - 1)], stack[_U(depth)]
                if stack_weights[_U(depth)] < stack_weights[_U(depth - 1)]:
                    for i in range(middle, at):
                        lists[_U(begin + i - middle)] = lists[_U(i)]
                    at = begin + at - middle
                    stack_weights[_U(depth - 1)] = stack_weights[_U(depth)]
                else:
                    at = middle
            elif step == OR:
                depth -= 1
                stack_weights[_U(depth - 1)] += stack_weights[_U(depth)]
        always[_U(guard)] = stack_weights[0] == ALWAYS
        if stack_weights[0] < ALWAYS:
            for i in range(at):
                triggers[_U(n_chosen)] = lists[_U(i)]
                n_chosen += 1
        trigger_begins[_U(guard + 1)] = n_chosen
    return n_chosen
