"""Queries over streams that never end: as an operator of Structured Streaming, or batch by batch on the driver."""

from spark_glue.streaming.grouped import explain_stream, match_stream
from spark_glue.streaming.micro_batches import match_batches

__all__ = ["explain_stream", "match_batches", "match_stream"]
