"""The selection strategies: one record each, with all that the stages of an evaluation must know of it.

papers: CEL, appendix C.3.  A new strategy is one more record here, its keyword in `cer_gpu/ceql/grammar.lark`, and a
`Selection` (`cer_gpu.automaton.selection`) where no other one serves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cer_gpu.automaton.selection import Everything, Maximal, Ordered, Reader, Selection, Strict

_EARLIER = "{} compares with complex events that may begin before the window"
_NO_ANSWER = "where its choice is longer than {}, that end has no answer"


@dataclass(frozen=True)
class Strategy:
    """A selection strategy.

    Attributes
    ----------
    name : str
        The keyword after SELECT.
    selection : callable
        From the transitions of a CEA to the determinised states and their moves.
    words : str
        What is reported, as a sentence.  Of a strategy that compares, a clause: ``{}`` stands for the verb, and what
        is compared are the complex events of the same end.
    compares : bool
        True: complex events of the same end rule one another out.
    plural : bool
        True: of those that are compared several may be left.
    on_chains : bool
        True: the stacks of chains can evaluate it.
    consecutive : bool
        True: kept events stand at consecutive positions.
    most_at_an_end : int
        Complex events reported at one end at most; 0: all.
    too_long : str or None
        What becomes of a choice that is longer than the window ``{}``, where the strategy chooses before the window is
        looked at; None: it chooses among what lies within the window.
    against_ranges : str or None
        Why ranges of the stream are not exact; None: they are.
    """

    name: str
    selection: Callable[[Reader], Selection]
    words: str
    compares: bool = False
    plural: bool = False
    on_chains: bool = False
    consecutive: bool = False
    most_at_an_end: int = 0
    too_long: str | None = None
    against_ranges: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the name; the record is looked up."""
        return strategy_named, (self.name,)

    @property
    def independent(self) -> bool:
        """True: a complex event is reported whatever others there are."""
        return not self.compares and not self.most_at_an_end


_RECORDS = (
    Strategy(
        name="ALL",
        selection=Everything,
        words="Every one is reported.",
        on_chains=True,
    ),
    Strategy(
        name="ANY",
        selection=Everything,
        words="Of those that end at one event, any one is reported.",
        on_chains=True,
        most_at_an_end=1,
        against_ranges="ANY keeps the first of an order that depends on the events before the window",
    ),
    Strategy(
        name="STRICT",
        selection=Strict,
        words="Only those are reported whose kept events stand at consecutive positions (STRICT).",
        on_chains=True,
        consecutive=True,
    ),
    Strategy(
        name="NEXT",
        selection=lambda reader: Ordered(reader, marked_first=False),
        words="the one that takes the earliest events it can, and as many as it can, is {} (NEXT).",
        compares=True,
        too_long=_NO_ANSWER,
        against_ranges=_EARLIER.format("NEXT"),
    ),
    Strategy(
        name="LAST",
        selection=lambda reader: Ordered(reader, marked_first=True),
        words="the one that takes the latest events it can, and as many as it can, is {} (LAST).",
        compares=True,
        too_long=_NO_ANSWER,
        against_ranges=_EARLIER.format("LAST"),
    ),
    Strategy(
        name="MAX",
        selection=Maximal,
        words="those that are no part of another are {} (MAX).",
        compares=True,
        plural=True,
        too_long="where one that it keeps is longer than {}, neither that one is reported nor a part of it",
        against_ranges=_EARLIER.format("MAX"),
    ),
)

STRATEGIES = {strategy.name: strategy for strategy in _RECORDS}
"""By their names; the parser writes NXT, an alias, as NEXT."""
ALL = STRATEGIES["ALL"]


def strategy_named(name: str) -> Strategy:
    """Return the strategy of a name; KeyError where there is none."""
    return STRATEGIES[name]
