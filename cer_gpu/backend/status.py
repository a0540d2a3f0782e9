"""Status codes of the loops: why one returned, and what its caller is to do before the next call.

Each code stands twice: as a member of `Status`, which callers match on, and as a plain integer of the same name, which
kernels return (Numba takes module-level integers as constants; members of an enumeration cost a call each).
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Reason for which a loop returned."""

    DONE = 0
    """All events are read, or all matches are listed."""
    NEED_STEP = 1
    """The automaton's table lacks a step for the open event: determinise it."""
    GROW_NODES = 2
    """The ring of nodes, or of records, is full: collect what is dead, or take more memory."""
    GROW_LISTS = 3
    """A row of a slot is too short: union lists (in counting: columns) need more space."""
    GROW_SLOTS = 4
    """Too few slots are free for the states that may become active."""
    GROW_PATH = 5
    """A match is longer than the arrays of the listing."""
    GROW_WINDOW = 6
    """The window holds more events than its ring."""
    OUTPUT_FULL = 7
    """The output buffers are full: hand them over; where they are empty, one match needs larger ones."""
    RENUMBER = 8
    """The numbers of a partition's events pass 32 bits: count them from a later origin."""
    TOO_MANY = 9
    """A count passes int64."""
    GO_ON = 10
    """The steps of one call are spent: call again, which gives signals and other threads their turn."""


DONE = int(Status.DONE)
NEED_STEP = int(Status.NEED_STEP)
GROW_NODES = int(Status.GROW_NODES)
GROW_LISTS = int(Status.GROW_LISTS)
GROW_SLOTS = int(Status.GROW_SLOTS)
GROW_PATH = int(Status.GROW_PATH)
GROW_WINDOW = int(Status.GROW_WINDOW)
OUTPUT_FULL = int(Status.OUTPUT_FULL)
RENUMBER = int(Status.RENUMBER)
TOO_MANY = int(Status.TOO_MANY)
GO_ON = int(Status.GO_ON)
