"""The exceptions that only Spark can cause; all are `cer_gpu.errors.CerError`."""

from __future__ import annotations

from cer_gpu.errors import CerError

INSTALL = "pip install 'cer-gpu[spark]'"


class SparkSetupError(CerError):
    """Spark cannot be started here: a package or a Java is missing, too old or broken."""


class StreamSplitError(CerError):
    """The rows of one stream came to the stage in several parts, each of which would count from 0."""
