"""Sets of queries, prepared for their events: facts on each query before it reads any, cached for later processes.

`sets.py` compiles the queries of a set, or knows from an earlier process that they compile; `over_schema.py` has what
is known of them over a schema.  Both are cached as JSON.
"""
