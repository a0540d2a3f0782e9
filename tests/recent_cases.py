"""Cases of SELECT RECENT: a random query, compiled, and a random stream, evaluated in pieces."""

import pyarrow as pa
import recent_strategies


class RecentCase:
    """A compiled query and a random stream of `n` events."""

    def __init__(self, rnd, query, compiled, n):
        self.rnd, self.query, self.compiled = rnd, query, compiled
        self.stream = recent_strategies.stream_of(rnd, n)
        self.table = recent_strategies.table_of(self.stream)

    def found(self, table):
        """The rows of "bindings" of an answer, in the same way."""
        names = list(self.compiled.variables)
        return [
            (row["start"], row["end"], tuple(row["positions"]), tuple((name, _positions(row[name])) for name in names))
            for row in table.to_pylist()
        ]

    def pushed(self, output):
        """The results of an evaluator that is given random pieces, and put down and taken up in between."""
        evaluator = self.compiled.evaluator(output=output)
        answers, begin = [], 0
        while begin < self.table.num_rows:
            n = self.rnd.randint(1, 12)
            pieces = self.table.slice(begin, n).combine_chunks().to_batches()
            answers += [evaluator.push(batch) for batch in pieces]
            begin += n
            if self.rnd.random() < 0.3:
                evaluator = self.compiled.restore(evaluator.checkpoint())
        answers.append(evaluator.finish())
        return pa.Table.from_batches(answers)


def _positions(held):
    return () if held is None else (held,) if isinstance(held, int) else tuple(held)
