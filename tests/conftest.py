"""Settings of all property tests."""

import os

from hypothesis import settings

# the first example of a test may compile kernels; a run in CI is the same each time
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
