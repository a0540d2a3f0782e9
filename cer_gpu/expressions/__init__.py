"""Expressions and predicates over the columns of events: the computation of each kind of test by Arrow and NumPy."""
