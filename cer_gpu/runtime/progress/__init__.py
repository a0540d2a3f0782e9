"""The runtime of funnels, whose rows are known by their starts."""
