"""The language of values: expressions and predicates as typed terms, the operators, and all ways to compute them."""
