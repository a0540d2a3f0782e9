"""PARTITION BY: keys of events to dense partition ids."""
