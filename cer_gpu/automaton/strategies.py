"""The selection strategies: one record each, which every stage of an evaluation reads.

papers: CEL, appendix C.3.  A new strategy is one more record here, its keyword in `cer_gpu/ceql/grammar.lark`, and, if
none serves it, a `Selection` (`cer_gpu.automaton.selection`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cer_gpu.automaton.encoding import CHOOSE_ALL, CHOOSE_LAST, CHOOSE_MAX, CHOOSE_NEXT
from cer_gpu.automaton.selection import Everything, Maximal, Ordered, Reader, Selection, Strict

_EARLIER = "{} compares with matches that may begin before the window"
_PENDING = "what is pending for RECENT depends on all events before, those before the window too"
_NO_MATCH = "where its choice is longer than {}, that end has no match"


@dataclass(frozen=True)
class Strategy:
    """Record of a selection strategy.

    Attributes
    ----------
    name : str
        Keyword after SELECT.
    selection : callable
        Makes the determinised states and their moves from the transitions of a CEA.
    words : str
        Sentence on the matches that are reported.  For a strategy that compares, a clause on those of the same
        end, with ``{}`` for the verb.
    compares : bool
        True: matches of the same end rule one another out.
    plural : bool
        True: several of the compared matches may be reported.
    on_chains : bool
        True: the stacks of chains can evaluate it.
    consecutive : bool
        True: selected events are at consecutive positions.
    most_at_an_end : int
        Most matches reported at one end; 0: all.
    choice : int
        Its choice among all matches of one end that lie in the window: CHOOSE_ALL, CHOOSE_NEXT, CHOOSE_LAST or
        CHOOSE_MAX (`cer_gpu.automaton.encoding`).
    too_long : str or None
        Clause on a choice that is longer than the window ``{}``, for a strategy that chooses before the window applies;
        None: the strategy chooses among the matches within the window.
    pending : bool
        True: no more than one partial match is pending for each step and key (`cer_gpu.automaton.recent`).
    why_not_ranges : str or None
        Reason why evaluation by ranges of the stream is not exact, or None if it is.
    """

    name: str
    selection: Callable[[Reader], Selection]
    words: str
    compares: bool = False
    plural: bool = False
    on_chains: bool = False
    consecutive: bool = False
    most_at_an_end: int = 0
    choice: int = CHOOSE_ALL
    too_long: str | None = None
    pending: bool = False
    why_not_ranges: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the name; the record is looked up."""
        return strategy_named, (self.name,)

    @property
    def independent(self) -> bool:
        """True if other matches have no influence on the report of one."""
        return not self.compares and not self.most_at_an_end and not self.pending


_RECORDS = (
    Strategy(
        name="ALL",
        selection=Everything,
        words="All matches are reported.",
        on_chains=True,
    ),
    Strategy(
        name="ANY",
        selection=Everything,
        words="Of the matches that end at the same event, only one is reported (ANY).",
        on_chains=True,
        most_at_an_end=1,
        why_not_ranges="ANY keeps the first of an order that depends on the events before the window",
    ),
    Strategy(
        name="STRICT",
        selection=Strict,
        words="Only matches whose selected events are at consecutive positions are reported (STRICT).",
        on_chains=True,
        consecutive=True,
    ),
    Strategy(
        name="NEXT",
        selection=lambda reader: Ordered(reader, marked_first=False),
        words="the one that takes the earliest events it can, and as many as it can, is {} (NEXT).",
        compares=True,
        choice=CHOOSE_NEXT,
        too_long=_NO_MATCH,
        why_not_ranges=_EARLIER.format("NEXT"),
    ),
    Strategy(
        name="LAST",
        selection=lambda reader: Ordered(reader, marked_first=True),
        words="the one that takes the latest events it can, and as many as it can, is {} (LAST).",
        compares=True,
        choice=CHOOSE_LAST,
        too_long=_NO_MATCH,
        why_not_ranges=_EARLIER.format("LAST"),
    ),
    Strategy(
        name="MAX",
        selection=Maximal,
        words="those that are not part of another are {} (MAX).",
        compares=True,
        choice=CHOOSE_MAX,
        plural=True,
        too_long="where one that it keeps is longer than {}, neither that one is reported nor a part of it",
        why_not_ranges=_EARLIER.format("MAX"),
    ),
    Strategy(
        name="RECENT",
        selection=Everything,
        words=(
            "For each step but the last, only the partial match that reached it most recently is pending; an event "
            "that satisfies the next step advances it, replacing the one that is pending there (RECENT)."
        ),
        pending=True,
        why_not_ranges=_PENDING,
    ),
)

STRATEGIES = {strategy.name: strategy for strategy in _RECORDS}
"""The strategies by name; the parser writes NXT, an alias, as NEXT."""
ALL = STRATEGIES["ALL"]


def strategy_named(name: str) -> Strategy:
    """Return the strategy of a name; raise KeyError if there is none."""
    return STRATEGIES[name]
