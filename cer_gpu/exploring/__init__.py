"""Exploration of patterns: a page, or a widget, that evaluates a query as one types."""
