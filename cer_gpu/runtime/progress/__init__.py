"""The runtime of funnels, with a row for each start."""
