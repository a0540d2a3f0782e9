"""Forecasts: how likely it is that a match ends, and by when, learned from the waiting times of a history."""
