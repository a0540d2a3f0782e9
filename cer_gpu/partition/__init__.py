"""PARTITION BY: keys to dense partition ids."""
