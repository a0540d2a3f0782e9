"""Conditions of EQL that are compared with null: predicates that a condition is NULL.

Such a condition has three truth values, as in SQL: a test is NULL where a value that it reads is missing, and AND and
OR are NULL where the others do not decide them.  A comparison with null is never NULL, nor is a search in a list.

Source: Elasticsearch, which computes conditions within others as values (docs/reference/eql.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children
from cer_gpu.eql import syntax as e
from cer_gpu.eql.rewriting import SEARCHES, is_condition
from cer_gpu.resolution.predicates import ResolvedTruth, joined_truths, negation


@dataclass(frozen=True)
class UnknownTruths:
    """Tests for NULL of the conditions of one event.

    Parameters
    ----------
    truth
        Returns the predicate that a condition holds, or, negated, that it does not.
    is_null
        Returns the predicate that a value is NULL, or, negated, that it is not.
    null_if_missing
        Returns null in place of a field that the events do not have.
    """

    truth: Callable[[e.EqlExpression, bool], ResolvedTruth]
    is_null: Callable[[e.EqlExpression, bool, s.Span], ResolvedTruth]
    null_if_missing: Callable[[e.EqlExpression], e.EqlExpression]

    def of(self, node: e.EqlExpression, negated: bool) -> ResolvedTruth:
        """Return the predicate that a condition is NULL, or, negated, that it is TRUE or FALSE."""
        unknown = self._unknown(node)
        return negation(unknown) if negated else unknown

    def _unknown(self, node: e.EqlExpression) -> ResolvedTruth:
        if not is_condition(node):
            return self.is_null(node, False, node.span)
        match node:
            case e.NotCondition():
                return self._unknown(node.operand)
            case e.And() | e.Or():
                undecided = [negation(self._is(each, isinstance(node, e.Or))) for each in node.operands]
                return joined_truths(s.And, [self._some_unknown(node.operands, node.span), *undecided], node.span)
            case e.Comparison():
                sides = [self.null_if_missing(each) for each in (node.left, node.right)]
                if node.op in ("==", "!=") and any(isinstance(x, e.ConstantValue) and x.value is None for x in sides):
                    return False
                return self._some_unknown(sides, node.span)
            case e.Match():
                return self._some_unknown((node.left, *node.values), node.span)
            case e.FunctionCall() if node.name.lower() not in SEARCHES:
                return self._some_unknown(children(node), node.span)
        return False

    def _some_unknown(self, nodes: Sequence[e.EqlExpression], span: s.Span) -> ResolvedTruth:
        """Return the predicate that one of some values and conditions is NULL."""
        return joined_truths(s.Or, list(map(self._unknown, nodes)), span)

    def _is(self, node: e.EqlExpression, truth: bool) -> ResolvedTruth:
        """Return the predicate that a condition is TRUE, or that it is FALSE, and not NULL."""
        return joined_truths(s.And, [self.truth(node, not truth), negation(self._unknown(node))], node.span)
