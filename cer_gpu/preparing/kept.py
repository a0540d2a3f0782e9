"""The size from which on sets are kept for later processes, and the versions that they depend on."""

import lark
import pyarrow as pa

FROM_QUERIES = 64
"""Queries of a set from which on it is looked up, and kept, as a whole."""
VERSIONS = repr((lark.__version__, pa.__version__))
"""Versions of packages on which it depends what a query is."""
