"""Queries that are refused, with the reason: random queries never are like these (`rest_strategies`)."""

from __future__ import annotations

EMPTY = {  # patterns that could be empty as a whole
    "an option alone": "A?",
    "any number": "A*",
    "any number, contiguous": "A:*",
    "any number, next": "A ->*",
    "none to two": "A{0,2}",
    "options in a sequence": "A? ; B*",
    "options beside each other": "A? : B?",
    "an option in one branch": "A OR B?",
    "an option under AS": "(A?) AS x",
    "an option under FILTER": "A? FILTER A[n > 1]",
    "iteration of an option": "(A?)+",
    "options of ALL": "A? ALL B?",
    "next of an option": "A? -> B?",
}

QUANTIFIERS = {
    "exactly none": "A ; B{0}",
    "none to none": "A ; B{0,0}",
    "more at least than at most": "A ; B{3,2}",
    "more at least than at most, contiguous": "A ; B:{3,2}",
    "no whole number": "A ; B{1.5}",
    "a negative number": "A ; B{-1}",
    "no number": "A ; B{}",
}

NEXT = {  # behind an arrow stands one event, or an iteration of one
    "a sequence": "A -> (B ; C)",
    "a contiguous sequence": "A -> (B : C)",
    "a conjunction": "A -> (B ALL C)",
    "an iteration of a sequence": "A -> (B ; C)+",
    "next of several": "(A ; B) ->+",
    "counted next of several": "(A ; B) ->{2,3}",
    "an event or a sequence": "A -> (B OR (B ; C))",
}

ABSENCES = {
    "alone": "!A",
    "at the beginning": "!A ; B",
    "at the beginning of parentheses": "A ; (!D ; B)",
    "behind an option": "A? ; !D ; B",
    "before an option": "A ; !D ; B?",
    "before any number": "A ; !D ; B*",
    "before a contiguous one": "A ; !D : B",
    "behind a contiguous one": "A : !D ; B",
    "behind an arrow": "A -> !D ; B",
    "under another": "A ; !(!D) ; B",
    "of a sequence": "A ; !(C ; D) ; B",
    "in a disjunction": "(A ; !D) OR B",
    "in a conjunction": "(A ; !D) ALL B",
    "in an iteration": "(A ; !D)+",
    "iterated": "A ; !D+ ; B",
    "of the one before": "A+ AS x ; !(D FILTER D.n > PREV(x).n) ; B",
    "of what stands behind": "A ; !(D FILTER D.n > B.n) ; B",
    "of what is not there": "A ; !(D FILTER D.n > E.n) ; B",
    "of its own event outside": "A ; !(D AS d) ; B FILTER d[n > 1]",
}

PATTERNS = {
    f"{kind}, {name}": f"SELECT * FROM S WHERE {pattern}"
    for kind, group in (("empty", EMPTY), ("quantifier", QUANTIFIERS), ("next", NEXT), ("absence", ABSENCES))
    for name, pattern in group.items()
}

QUERIES = {
    **PATTERNS,
    "absence at the end without WITHIN": "SELECT * FROM S WHERE A ; !D",
    "absence at the end, in a disjunction": "SELECT * FROM S WHERE (A ; !D) OR B WITHIN 5 EVENTS",
    "absence at the end, in a conjunction": "SELECT * FROM S WHERE (A ; !D) ALL B WITHIN 5 EVENTS",
    "absence at the end, in an iteration": "SELECT * FROM S WHERE (A ; !D)+ WITHIN 5 EVENTS",
    "absence at the end, consumed by any": "SELECT * FROM S WHERE A ; !D WITHIN 5 EVENTS CONSUME BY ANY",
    "absence at the end, consumed in a partition": (
        "SELECT * FROM S WHERE A ; !D PARTITION BY [k] WITHIN 5 EVENTS CONSUME BY PARTITION"
    ),
    "THEN WITHIN with a filter between events": (
        "SELECT NEXT * FROM S WHERE A ; B FILTER B.n > A.n THEN WITHIN 5 EVENTS"
    ),
    "THEN WITHIN with ALL": "SELECT MAX * FROM S WHERE A ALL B THEN WITHIN 5 EVENTS",
    "LAG of no event": "SELECT * FROM S WHERE A FILTER A[n > LAG(n, 0)]",
    "LAG of a part of an event": "SELECT * FROM S WHERE A FILTER A[n > LAG(n, 1.5)]",
    "LAG of arithmetic": "SELECT * FROM S WHERE A FILTER A[n > LAG(n + 1)]",
    "no such function": "SELECT * FROM S WHERE A FILTER A[squared(n) > 1]",
    "a function of two": "SELECT * FROM S WHERE A FILTER A[abs(n, m) > 1]",
    "an aggregate in a filter": "SELECT * FROM S WHERE A+ FILTER A[SUM(n) > 1]",
    "HAVING without measures": "SELECT * FROM S WHERE A ; B HAVING m > 1",
    "HAVING of no measure": "SELECT COUNT(A) AS m FROM S WHERE A+ HAVING q > 1",
    "a measure of what may hold several": "SELECT A.n FROM S WHERE A+",
    "a measure of no variable": "SELECT COUNT(z) FROM S WHERE A+",
    "two measures of one name": "SELECT COUNT(A) AS m, SUM(A.n) AS m FROM S WHERE A+",
    "LAG as a measure": "SELECT LAG(A.n) AS m FROM S WHERE A",
}
