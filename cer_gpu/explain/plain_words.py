"""A query in plain words: its pattern, step by step, and its clauses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from cer_gpu.automaton.normal_form import (
    Absent,
    Atom,
    Both,
    Either,
    Guard,
    Joint,
    NormalForm,
    Related,
    Repeat,
    Then,
    Trailing,
    choices,
    sequence,
)
from cer_gpu.automaton.strategies import Strategy
from cer_gpu.ceql.functions import EMPTY
from cer_gpu.ceql.step_keys import StepwiseKeys
from cer_gpu.ceql.syntax import (
    ANY_TYPE,
    Measure,
    OverAggregate,
    Predicate,
    QuerySyntax,
    Within,
    aggregates_in,
    attributes,
    relations,
    variable_filters,
)
from cer_gpu.ceql.traversal import Node, walk
from cer_gpu.explain.ceql_text import (
    attribute_text,
    expression_text,
    key_text,
    name_text,
    over_aggregate_text,
    own_keys_text,
    predicate_text,
    qualified_name_text,
    stream_of_variable,
)
from cer_gpu.printable import printable

_SIDES = {"head": "first", "tail": "last"}
_CONSUME = {
    "ANY": "Once a match is found, everything read before is discarded, in all groups (CONSUME BY ANY).",
    "PARTITION": "Once a match is found, everything read before in its group is discarded (CONSUME BY PARTITION).",
}
_LATER, _NEXT = "later", "at the very next position"
_ONE, _NEXT_ONE = "one event", "the next event"
_NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_SPOKEN_WITH_AN = re.compile(r"(?i)(?!eu|one(?![a-z])|once|uni|us[aeu]|ut[ei])[aeiou][a-z]|[aeio](?![a-z])")
_SPELLED_WITH_AN = re.compile("[FHLMNRSXfhlmnrsx][^AEIOUYaeiouy]*")


def in_words(syntax: QuerySyntax, formula: NormalForm, strategy: Strategy) -> list[str]:
    """Return a query in plain words, line by line.

    Parameters
    ----------
    syntax
        Parsed query, for its clauses.
    formula
        WHERE in LP-normal form, in which every filter is at its event.
    strategy
    """
    streams = [name.name for name in syntax.streams]
    where = f" in {_list_words([name_text(name) for name in streams], 'and')}" if streams else ""
    lines = [f"Look{where} for:", *("  " + line for line in _outline(formula, streams))]
    lines += _partition_lines(syntax)
    lines += _window_lines(syntax.within, strategy, within_first=not syntax.chooses_first)
    if strategy.pending and any(_may_vary(part) for part in walk(formula)):
        lines.append(_STARTED_LAST)
    lines += [_CONSUME[syntax.consume]] if syntax.consume != "NONE" else []
    lines += _reported_lines(syntax)
    lines += _let_lines(syntax)
    lines += _looking_back(syntax)
    if syntax.head:
        values = [
            f"{name_text(v.name)} ({attribute_text(v.attribute)} of {name_text(v.atom.name)})" for v in syntax.head
        ]
        lines.append(f"Each match also lists {_list_words(values, 'and')}.")
    return [printable(line) for line in lines]


def _partition_lines(syntax: QuerySyntax) -> Iterator[str]:
    """Yield the line of PARTITION BY."""
    if syntax.partition:
        keys = _list_words([" or else ".join(key_text(name) for name in names) for names in syntax.partition], "and")
        nullable = any(name.nullable for names in syntax.partition for name in names)
        also = " NULL is a value like any other." if nullable else ""
        yield f"All events of a match have the same {keys}; each such group is searched separately.{also}"
    if syntax.step_keys is not None:
        yield from _step_key_lines(syntax.step_keys)


def _step_key_lines(keys: StepwiseKeys) -> Iterator[str]:
    """Yield the lines of keys by step."""
    first, *others = (tuple(key.attribute for key in role) for role in keys.steps)
    of_steps = "" if all(each == first for each in others) else ", each step of its own columns"
    all_keys = [key for role in keys.roles for key in role]
    listed = " An event has each distinct element of a list as a key." if any(key.in_list for key in all_keys) else ""
    also = " NULL is a value like any other." if any(key.nullable for key in all_keys) else ""
    names = _list_words([printable(name) for name in keys.columns], "and") + of_steps
    yield f"All events of a match have the same {names}; each such group is searched separately.{listed}{also}"
    if keys.samples:
        yield (
            "A match is a sample: for each group one event for each of these, all different, the earliest first. "
            "Samples are known at the end of the events, and come in the order of their keys."
        )


def _reported_lines(syntax: QuerySyntax) -> Iterator[str]:
    """Yield the lines of measures, HAVING, LIMIT, pipes and SELECT."""
    measures = [_measure(measure) for measure in syntax.select.measures]
    if measures:
        yield f"Each row has {_list_words(measures, 'and')}."
    if syntax.having is not None:
        yield f"Only rows with {predicate_text(syntax.having)} are reported (HAVING)."
    if syntax.limit is not None and syntax.every is not None:
        matches = "match" if syntax.limit == 1 else f"{syntax.limit:,} matches"
        each, verb = " per group" if syntax.partition else "", "is" if syntax.limit == 1 else "are"
        within = syntax.every
        length = f"{int(within.length):,} events" if within.kind == "events" else window_text(within)
        yield f"In any {length}, at most the first {matches}{each} {verb} reported (LIMIT EVERY)."
    elif syntax.limit is not None:
        yield f"At most {syntax.limit:,} that end at the same event are reported (LIMIT)."
    for number, pipe in enumerate(syntax.pipes):
        of_which = "Of these" if number else "Of all results"
        yield f"{of_which}, only the {_SIDES[pipe.kind]} {pipe.n:,} are reported ({pipe.kind})."
    if not measures or any(item.written for item in syntax.select.items or ()):
        yield _selected_line(syntax)


_STARTED_LAST = (
    "Of several partial matches that an event could advance, it advances the one that started last; a match that may "
    "go on with further events stays pending, too."
)


def _may_vary(part: Node) -> bool:
    """Return whether matches may have unlike numbers of events of a part."""
    if isinstance(part, Repeat):
        return part.n_min != part.n_max
    return isinstance(part, Then) and any(part.optional)


def _window_lines(within: Within | None, strategy: Strategy, *, within_first: bool) -> list[str]:
    """Return the lines of window and strategy, in the order in which they drop matches.

    A strategy chooses among those within the window (`within_first`), but for THEN WITHIN.
    """
    window = "" if within is None else f"he first and the last event of a match {_apart(within)}."
    if not strategy.compares:
        return [*(["T" + window] if window else []), strategy.words]
    choice = "Of the matches that end at the same event, " + strategy.words
    if within_first or not window:
        return [*(["T" + window] if window else []), choice.format("reported")]
    assert within is not None
    window = f"its first and its last event {_apart(within)}."
    return [choice.format("chosen"), f"{'Each' if strategy.plural else 'It'} is reported only if {window}"]


def _apart(within: Within) -> str:
    """Return the clause that says how far apart two events may be."""
    if within.attribute is not None:
        return f"differ by at most {window_text(within)}"
    return f"are at most {window_text(within)} apart"


def window_text(within: Within) -> str:
    """Return the length of a window in words."""
    number = _number_words(within.length)
    if within.kind == "events":
        return _count_words(number, "position")
    if within.attribute is not None:
        return f"{number} in {attribute_text(within.attribute.name)}"
    units = {"day": 86_400, "hour": 3_600, "minute": 60}
    parts, rest = [], within.length
    for unit, seconds in units.items():
        n, rest = divmod(rest, seconds)
        parts += [_count_words(_number_words(Fraction(n)), unit)] if n else []
    parts += [_count_words(_number_words(rest), "second")] if rest or not parts else []
    return " ".join(parts)


def _selected_line(syntax: QuerySyntax) -> str:
    items = syntax.select.items
    if items is None:
        return "Each match lists all of its events."
    names = [qualified_name_text(item.variable) for item in items if item.written]
    if not names:
        return "A match lists none of its events, only where it starts and ends."
    return f"Each match lists the events of {_list_words(list(dict.fromkeys(names)), 'and')}."


def _measure(measure: Measure) -> str:
    text = expression_text(measure.expression)
    return text if measure.name == text else f"{text} as {name_text(measure.name)}"


def _let_lines(syntax: QuerySyntax) -> Iterator[str]:
    """Yield the line of LET: filters have the expressions of its columns, and the others are made."""
    if syntax.let:
        columns = [f"{name_text(each.name)} = {expression_text(each.expression)}" for each in syntax.let]
        stored_names = [name_text(each.name) for each in syntax.let if each.is_made]
        stored = f" Made as columns: {', '.join(stored_names)}." if stored_names else ""
        yield f"Computed from each event (LET): {'; '.join(columns)}.{stored}"


def _looking_back(syntax: QuerySyntax) -> list[str]:
    """Return the lines that say which events LAG and OVER aggregates read, if the query has them."""
    predicates = [each.predicate for each in variable_filters(syntax.formula)]
    predicates += [each.predicate for each in relations(syntax.formula)]
    values = [*predicates, *(column.expression for column in syntax.let)]
    read = [each for value in values for each in attributes(value)]
    over_aggregates = dict.fromkeys(aggregate for each in read for aggregate in aggregates_in(each))
    lines = [_over_line(aggregate, grouped=bool(syntax.partition)) for aggregate in over_aggregates]
    lagged = [each for each in read if each.lag]
    if not lagged:
        return lines
    texts = list(dict.fromkeys(map(expression_text, lagged)))
    of = "the same group" if syntax.partition else "the stream"
    before = "the previous event" if all(each.lag == 1 for each in lagged) else "an earlier event"
    reads = "reads" if len(texts) == 1 else "read"
    lag_line = f"{_list_words(texts, 'and')} {reads} {before} of {of}, whatever its type; NULL if there is none."
    return [lag_line, *lines]


def _over_line(aggregate: OverAggregate, *, grouped: bool) -> str:
    """Return the line that says which events an OVER aggregate reads."""
    own = own_keys_text(aggregate)
    of = " of its group" if grouped and aggregate.keys is None else ""
    if aggregate.keys:
        of = f" with the same {own}"
    events = "all events" if aggregate.event is None else f"the {qualified_name_text(aggregate.event)} events"
    if aggregate.predicate is not None:
        events += f" with {predicate_text(aggregate.predicate)}"
    if aggregate.condition is not None and aggregate.predicate is not None:
        holds = f"{predicate_text(aggregate.predicate)} and {predicate_text(aggregate.condition)} hold"
        before = "and the latter did not hold just before, over the same events without this one"
        return f"{over_aggregate_text(aggregate)} is TRUE at an event where {holds}, {before}."
    if aggregate.over is None:
        child, parent = map(attribute_text, aggregate.ids)
        ancestor = f"an ancestor of the event's process (by {child} and {parent}) had one of {events} before"
        return f"{over_aggregate_text(aggregate)} is TRUE if {ancestor}, anywhere in the stream."
    empty = "NULL" if EMPTY[aggregate.function] is None else EMPTY[aggregate.function]
    reach = f"at most {window_text(aggregate.over)} before it{', including itself' * aggregate.itself}"
    return f"{over_aggregate_text(aggregate)} at an event covers {events}{of} {reach}; it is {empty} if there are none."


# ---- the pattern --------------------------------------------------------------------------------------------------


def _outline(formula: NormalForm, streams: Sequence[str], one: str = _ONE) -> Iterator[str]:
    """Yield the lines of a pattern; steps, choices and repeated patterns are indented below the line they belong to.

    `one` comes before the type of a pattern that is one event.
    """
    match formula:
        case Atom():
            yield _event_words(formula, streams, one)
        case Then():
            steps = list(sequence(formula))
            for number, (step, joint) in enumerate(steps):
                yield from _step_lines(number, step, joint, _is_optional(steps, number), streams)
        case Either():
            yield "one of these:" if one == _ONE else "the next of these:"
            for choice in choices(formula):
                yield from _item_lines(_outline(choice, streams))
        case Both():
            parts = list(_operands_of_all(formula))
            yield f"{'both' if len(parts) == 2 else 'all'} of these, in any order:"
            for part, optional in parts:
                yield from _item_lines(_step_outline(part, streams), "optionally, " if optional else "")
        case Trailing():
            yield from _outline(formula.body, streams)
            until = "until the window that begins with the first event has passed"
            if formula.length is not None:
                until = f"until {window_text(formula.length)} after the last event have passed"
            yield from _absence_lines(formula.absent, "then ", f" {until}")
        case Related():
            yield from _outline(formula.body, streams, one)
            word = "and" if isinstance(formula.body, Related) else "such that"
            yield f"{word} {predicate_text(formula.relation.predicate)}"
        case Repeat():
            yield from _repeat_lines(formula, streams, one)


def _step_lines(number: int, step: NormalForm, joint: Joint, optional: bool, streams: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a step of a sequence, by its number from 0."""
    repeated = step.body if isinstance(step, Repeat) and step.absent == joint.absent else step
    beside = _beside_next(repeated, joint.absent)
    lines = _step_outline(step, streams, _ONE if beside is None else _NEXT_ONE)
    when = "" if number == 0 else f"{_NEXT}, " if joint.contiguous else f"{_LATER}, "
    event = "in this order:" if isinstance(step, Then) else next(lines)
    yield f"{number + 1}. {when}{'optionally, ' if optional else ''}{event}"
    yield from ("   " + line for line in lines)
    if isinstance(step, Repeat) and beside is None:
        beside = _beside_next(step.body, joint.absent)
        if beside is not None:
            yield "   the first of them is the next such event"
    absent = joint.absent if beside is None else beside
    yield from ("   " + line for line in _absence_lines(absent, "with ", " since the previous step"))


def _item_lines(lines: Iterator[str], prefix: str = "") -> Iterator[str]:
    """Yield lines as an item of a list."""
    yield "- " + prefix + next(lines)
    yield from ("  " + line for line in lines)


def _repeat_lines(repeat: Repeat, streams: Sequence[str], one: str) -> Iterator[str]:
    """Yield the lines of a repeated part, which may be a single event."""
    atom = repeat.body
    if not isinstance(atom, Atom):
        times = f"{_repeat_words(repeat)} times"
        yield times + (", each directly after the previous one:" if repeat.contiguous else ", one after another:")
        yield from ("  " + line for line in _outline(repeat.body, streams))
        yield from _absence_lines(repeat.absent, "with ", _BETWEEN)
        return
    times = _repeat_words(repeat)
    if one == _NEXT_ONE:
        yield _event_words(atom, streams, f"the next {times} events")
    elif repeat.contiguous:
        yield _event_words(atom, streams, f"{times} events") + ", at consecutive positions"
    elif _beside_next(atom, repeat.absent) == []:
        yield _event_words(atom, streams, f"{times} consecutive events")
    else:
        yield _event_words(atom, streams, f"{times} events") + ", not necessarily consecutive"
        yield from _absence_lines(repeat.absent, "with ", _BETWEEN)


_BETWEEN = " between one and the next"


def _repeat_words(repeat: Repeat) -> str:
    """Return how often a part is repeated: ``one or more``, ``two to four``."""
    n_min, n_max = repeat.n_min, repeat.n_max
    if n_max is None:
        return f"{_count_word(n_min)} or more"
    return _count_word(n_min) if n_min == n_max else f"{_count_word(n_min)} to {_count_word(n_max)}"


def _count_word(n: int) -> str:
    return _NUMBERS[n] if n < len(_NUMBERS) else f"{n:,}"


def _is_optional(steps: Sequence[tuple[NormalForm, Joint]], number: int) -> bool:
    """Return True if a step of a sequence may be missing."""
    return steps[number][1].optional[1] if number else len(steps) > 1 and steps[1][1].optional[0]


def _absence_lines(absent: Sequence[Absent], before: str, after: str = "") -> Iterator[str]:
    """Yield a line for each kind of event that must be absent, with `before` and `after` around its words."""
    for each in absent:
        tests = " and ".join(predicate_text(relation.predicate) for relation in each.relations)
        roles = (role for relation in each.relations for role in relation.roles if role.sites & each.sites)
        names = dict.fromkeys(
            role.variable.name for role in roles if role.variable.name not in (each.guard.event_type, ANY_TYPE)
        )
        event = _guarded(each.guard, each.negated, "no event", list(names))
        yield f"{before}{event}{after}" + (f", such that {tests}" if tests else "")


def _beside_next(step: NormalForm, absent: Sequence[Absent]) -> list[Absent] | None:
    """Return the absences before an event except those of its kind, or None if it need not be the next of that kind."""
    events = []
    for choice in choices(step):
        event, predicates = choice, list[Predicate]()
        while isinstance(event, Related):
            predicates.insert(0, event.relation.predicate)
            event = event.body
        if not isinstance(event, Atom):
            return None
        events.append((event.guard, event.negated, predicates))
    kinds = [(each.guard, each.negated, [r.predicate for r in each.relations]) for each in absent]
    if any(event not in kinds for event in events):
        return None
    return [each for each, kind in zip(absent, kinds, strict=True) if kind not in events]


def _operands_of_all(formula: NormalForm) -> Iterator[tuple[NormalForm, bool]]:
    """Yield the operands of ALL, from left to right, each with True if it may be missing."""
    todo = [(formula, False)]
    while todo:
        part, optional = todo.pop()
        if isinstance(part, Both) and not optional:
            todo += [(part.right, part.optional[1]), (part.left, part.optional[0])]
        else:
            yield part, optional


def _step_outline(step: NormalForm, streams: Sequence[str], one: str = _ONE) -> Iterator[str]:
    """Yield the lines of a step of a sequence, or of an operand of ALL; a filtered sequence is a list of its own."""
    body = step
    while isinstance(body, Related):
        body = body.body
    if isinstance(step, Related) and isinstance(body, Then):
        yield "in this order:"
        yield from ("  " + line for line in _outline(step, streams))
    else:
        yield from _outline(step, streams, one)


def _guarded(guard: Guard, negated: bool = False, one: str = _ONE, names: Sequence[str] = ()) -> str:
    """Return the words for an event that satisfies a guard, or does not.

    `one` is the phrase in which the name of its type is before the noun, as in "the next A event", and `names`
    are those of its variables.
    """
    quantity, _, noun = one.rpartition(" ")
    if negated:
        are = "is" if noun == "event" else "are"
        what = _guarded(guard, one=_ONE if noun == "event" else noun)
        called = _called(names)
        return f"{'an event' if one == _ONE else one}{called} that {are} not {what}"
    if guard.event_type is not None:
        quantity = _article(guard.event_type) if one == _ONE else quantity
        event = " ".join([*([quantity] if quantity else []), name_text(guard.event_type), noun])
    elif one == _ONE:
        event = "any event" if guard.stream is None and guard.predicate is None else "an event"
    else:
        event = one
    event += _called(names)
    if guard.stream is not None:
        event += f" of stream {name_text(guard.stream)}"
    if guard.predicate is not None:
        event += f" with {predicate_text(guard.predicate)}"
    return event


def _called(names: Sequence[str]) -> str:
    return f" ({_list_words([name_text(name) for name in names], 'and')})" if names else ""


def _article(name: str) -> str:
    """Return the indefinite article of a name, by how it is likely to be spoken: ``a LANDED``, ``an SQL``."""
    return "an" if _SPOKEN_WITH_AN.match(name) or _SPELLED_WITH_AN.fullmatch(name) else "a"


def _event_words(atom: Atom, streams: Sequence[str], one: str = _ONE) -> str:
    guard = atom.guard
    own = [*streams, ANY_TYPE] if guard.event_type is None else [guard.event_type]
    names = sorted(name for name in atom.labels if name not in own and stream_of_variable(name, streams) is None)
    return _guarded(guard, atom.negated, one, [] if atom.negated else names)


def _list_words(items: list[str], word: str) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"


def _count_words(number: str, unit: str) -> str:
    return f"{number} {unit}" + ("" if number == "1" else "s")


def _number_words(number: Fraction) -> str:
    return f"{number.numerator:,}" if number.denominator == 1 else f"{float(number):,}"
