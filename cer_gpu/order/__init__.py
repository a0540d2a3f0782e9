"""Events in the order of time: sorting, merging, and events that arrive late."""
