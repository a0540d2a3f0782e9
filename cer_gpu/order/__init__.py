"""Events put in the order of time: sorting, merging, and reordering of events that arrive late."""
