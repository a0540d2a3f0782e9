"""Near misses: the furthest steps that events reached of rules, from their funnels."""

from __future__ import annotations

from dataclasses import dataclass

from cer_gpu.output.funnel_counts import FunnelCounts


@dataclass(frozen=True)
class Reached:
    """Furthest step of a rule that was reached.

    Attributes
    ----------
    name : str
        Name of the rule.
    n_steps : int
    n_starts : int
        Number of events that satisfy the first step.
    furthest : int
        Number of the furthest step, from 1; 0 where there are no starts.
    step : str
        Name of that step.
    n_furthest : int
        Starts that reached it.
    stopped : dict from str to int
        Those of them that got no further, by what stopped them.
    """

    name: str
    n_steps: int
    n_starts: int
    furthest: int
    step: str
    n_furthest: int
    stopped: dict[str, int]

    @property
    def is_complete(self) -> bool:
        """True if the last step was reached."""
        return self.furthest == self.n_steps

    @property
    def order(self) -> tuple[bool, int, int, str]:
        """Sort key: rules whose last step was not reached first, those with the fewest steps left before others."""
        return self.is_complete, self.n_steps - self.furthest, -self.n_furthest, self.name

    @property
    def words(self) -> str:
        """The reason that stopped them, as text."""
        return ", ".join(f"{reason} {n:,}" for reason, n in self.stopped.items() if n)


def reached(name: str, counts: FunnelCounts) -> Reached:
    """Return the furthest step that a rule reached."""
    rows = counts.rows
    furthest = sum(row.n_reached > 0 for row in rows)
    last = rows[max(furthest - 1, 0)]
    return Reached(name, len(rows), rows[0].n_reached, furthest, last.name, last.n_reached, dict(last.stopped))
