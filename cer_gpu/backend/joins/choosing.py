"""Choice among the gathered matches of one end: each once, and those that a selection strategy selects.

papers: CEL, appendix C.3: ``C <= D`` for NEXT if the least position of which only one has is in D, for LAST if the
greatest is; MAX keeps those that no other strictly contains; STRICT those at consecutive positions.
"""

from __future__ import annotations

import numpy as np

from cer_gpu.automaton.encoding import CHOOSE_LAST, CHOOSE_MAX, CHOOSE_NEXT
from cer_gpu.backend.arguments import Matches
from cer_gpu.backend.jit import helper, kernel
from cer_gpu.backend.status import DONE, GO_ON, GROW_PATH, OUTPUT_FULL

# registers that the loops of joins and of products share
(
    EVENT,  # the event under way
    LISTING,  # 1 while its matches are listed, else 0
    ROOT,  # the ends of matches at it that are listed next: which of its final atoms, or of its nodes
    N_HERE,  # matches so far that end at the event
    N_OUT,  # matches in the buffers
    N_VALUES,  # positions in the buffers
    FIRST_OUT,  # first match in the buffers that ends at the event
    DISTRIBUTED,  # candidates, or parts, that were distributed to the shards
    N_ENDS,  # counted ends in the buffers
    CHOSEN,  # one more than the row of an end to be compared next; 0: the choice is not under way
    CHOICE_LEFT,  # values that may be compared before the loop comes back
    N_SHARED_REGS,
) = range(12)

_U = np.uint64


@kernel
def choose_of_end(output, begin, n, strategy, distinct, scratch, regs):
    """Keep some of the rows from `begin` to `n`, in their order, at the begin of these rows.

    MAX compares all with all.  Once CHOICE_LEFT is spent this returns, and the next call continues.

    Parameters
    ----------
    output : Matches
    begin : int
    n : int
    strategy : int
        CHOOSE_ALL, CHOOSE_NEXT, CHOOSE_LAST or CHOOSE_MAX.
    distinct : int
        1 if rows may be equal; one of them is selected.
    scratch : int64, shape (ring,), written
        Three entries or more for each row; valid until the choice is made.
    regs : int64, shape (registers,), written

    Returns
    -------
    int
        Number of selected rows, or -1 if the choice is not made yet.
    """
    n_rows = n - begin
    if regs[CHOSEN] == 0:
        for r in range(n_rows):
            scratch[_U(r)] = 1  # selected, for now
        if distinct == 1:
            _drop_equal(output, begin, n_rows, scratch)
        regs[CHOSEN] = 1
    if strategy == CHOOSE_MAX:
        if not _drop_contained(output, begin, n_rows, scratch, regs):
            return np.int64(-1)
    elif strategy in (CHOOSE_NEXT, CHOOSE_LAST):
        best = np.int64(0)
        for r in range(1, n_rows):
            if _order(output, begin + best, begin + r, strategy) < 0:
                best = np.int64(r)
        for r in range(n_rows):
            scratch[_U(r)] &= _order(output, begin + r, begin + best, strategy) == 0
    regs[CHOSEN] = 0
    return _compact(output, begin, n_rows, scratch)


@kernel
def choose_at_ends(output, begins, strategy, scratch, n_selected, regs):
    """Choose among the rows of each of several ends, as `choose_of_end` does, from where the last call stopped.

    Parameters
    ----------
    output : Matches
    begins : int64, shape (ends + 1,)
        First row of each end, and the number of rows.
    strategy : int
        CHOOSE_NEXT, CHOOSE_LAST or CHOOSE_MAX.
    scratch : int64, shape (ring,), written
        Three entries or more for each row of one end.
    n_selected : int64, shape (ends,), written
        Number of selected rows, at the beginning of the rows of each end.
    regs : int64, shape (registers,), written
        ROOT is the end under way.

    Returns
    -------
    int
        DONE; GO_ON, once CHOICE_LEFT is spent.
    """
    output = Matches(*output)
    for end in range(regs[ROOT], n_selected.shape[0]):
        begin, n = begins[_U(end)], begins[_U(end + 1)]
        regs[ROOT] = end
        n_selected[_U(end)] = choose_of_end(output, begin, n, strategy, 0, scratch, regs)
        if n_selected[_U(end)] < 0:
            return GO_ON
    return DONE


@helper
def choose_rows(options, demand, output, scratch, ours, regs):
    """Keep those of the gathered rows of the event under way that are wanted, each once; return the status."""
    begin = regs[FIRST_OUT]
    if scratch.shape[0] < 3 * (regs[N_OUT] - begin):
        return GROW_PATH
    n_selected = np.int64(choose_of_end(output, begin, regs[N_OUT], demand.strategy, demand.distinct, scratch, regs))
    if n_selected < 0:
        return GO_ON
    if options.limit > 0:
        n_selected = min(n_selected, np.int64(options.limit))
    regs[N_HERE] = n_selected
    if demand.counting == 1 or not ours:
        n_selected = np.int64(0)
    regs[N_OUT] = begin + n_selected
    regs[N_VALUES] = output.offsets[_U(begin + n_selected)]
    return DONE


@helper
def count_end(events, options, counts, place, event, regs):
    """Note the number of matches that end at the event under way, if there are any; return the status."""
    if regs[N_HERE] == 0:
        return DONE
    if regs[N_ENDS] == counts.ends.shape[0]:
        return OUTPUT_FULL
    end = _U(regs[N_ENDS])
    counts.ends[end] = place
    counts.counts[end] = min(regs[N_HERE], options.limit) if options.limit > 0 else regs[N_HERE]
    if counts.times.shape[0] > 0:
        counts.times[end] = events.times[event]
    regs[N_ENDS] += 1
    return DONE


@helper
def _span(output, row):
    """Return the first and the last value of a row, the last exclusive."""
    return np.int64(output.offsets[_U(row)]), np.int64(output.offsets[_U(row + 1)])


@helper
def _equal(output, a, b):
    """Return whether two rows of one end are equal."""
    (x, x_end), (y, y_end) = _span(output, a), _span(output, b)
    if output.spans[0, _U(a)] != output.spans[0, _U(b)] or x_end - x != y_end - y:
        return False
    for t in range(x_end - x):
        if output.positions[_U(x + t)] != output.positions[_U(y + t)]:
            return False
        if output.marks.shape[0] > 0 and output.marks[_U(x + t)] != output.marks[_U(y + t)]:
            return False
    return True


@helper
def _drop_equal(output, begin, n_rows, scratch):
    """Keep the first of equal rows, by a hash table with two places for each row, which begins at `n_rows`."""
    first, n_slots = _U(n_rows), _U(2 * n_rows)
    for i in range(2 * n_rows):
        scratch[first + _U(i)] = -1
    for r in range(n_rows):
        x, x_end = _span(output, begin + r)
        h = _U(output.spans[0, _U(begin + r)]) * _U(0x9E3779B97F4A7C15)
        for t in range(x, x_end):
            h ^= _U(output.positions[_U(t)])
            h *= _U(0xFF51AFD7ED558CCD)
            h ^= h >> _U(32)
        slot = h % n_slots
        while scratch[first + slot] >= 0:
            if _equal(output, begin + scratch[first + slot], begin + r):
                scratch[_U(r)] = 0
                break
            slot = slot + _U(1) if slot + _U(1) < n_slots else _U(0)
        if scratch[_U(r)] == 1:
            scratch[first + slot] = r


@helper
def _order(output, a, b, strategy):
    """Return -1, 0 or 1: whether row `a` is worse than, as good as, or better than row `b`."""
    (x, x_end), (y, y_end) = _span(output, a), _span(output, b)
    n = min(x_end - x, y_end - y)
    for t in range(n):
        if strategy == CHOOSE_NEXT:
            left, right = output.positions[_U(y + t)], output.positions[_U(x + t)]
        else:
            left, right = output.positions[_U(x_end - 1 - t)], output.positions[_U(y_end - 1 - t)]
        if left != right:
            return -1 if left < right else 1
    return (x_end - x > n) - (y_end - y > n)


@helper
def _contains(output, a, b):
    """Return whether the positions of row `a` strictly contain those of row `b`."""
    (x, x_end), (y, y_end) = _span(output, a), _span(output, b)
    if x_end - x <= y_end - y:
        return False
    while y < y_end:
        while x < x_end and output.positions[_U(x)] < output.positions[_U(y)]:
            x += 1
        if x == x_end or output.positions[_U(x)] != output.positions[_U(y)]:
            return False
        y += 1
    return True


@helper
def _drop_contained(output, begin, n_rows, scratch, regs):
    """Drop the rows that another one strictly contains; return False if CHOICE_LEFT is spent before."""
    for r in range(regs[CHOSEN] - 1, n_rows):
        regs[CHOSEN] = r + 1
        if regs[CHOICE_LEFT] <= 0:
            return False
        beaten = _U(n_rows + r)
        scratch[beaten] = 0
        for other in range(n_rows):
            regs[CHOICE_LEFT] -= 1
            if scratch[_U(other)] == 1 and _contains(output, begin + other, begin + r):
                scratch[beaten] = 1
                break
    for r in range(n_rows):
        scratch[_U(r)] &= 1 - scratch[_U(n_rows + r)]
    return True


@helper
def _compact(output, begin, n_rows, scratch):
    """Move the selected rows to the beginning of their rows, and return their number."""
    n = np.int64(0)
    n_values = np.int64(output.offsets[_U(begin)])
    for r in range(n_rows):
        if scratch[_U(r)] == 0:
            continue
        source, target = _U(begin + r), _U(begin + n)
        x, x_end = _span(output, begin + r)
        output.spans[0, target] = output.spans[0, source]
        output.spans[1, target] = output.spans[1, source]
        if output.times.shape[1] > 0:
            output.times[0, target] = output.times[0, source]
            output.times[1, target] = output.times[1, source]
        for t in range(x_end - x):
            output.positions[_U(n_values + t)] = output.positions[_U(x + t)]
            if output.marks.shape[0] > 0:
                output.marks[_U(n_values + t)] = output.marks[_U(x + t)]
        n_values += x_end - x
        n += 1
        output.offsets[_U(begin + n)] = n_values
    return n
