"""The log source of AWS CloudTrail: records under the names that CloudTrail writes.

Names with dots (``userIdentity.arn``) are columns of that name, or fields of structs, whichever the events have.
"""

from __future__ import annotations

from collections.abc import Sequence

from cer_gpu.sigma.formulas import Presence, all_of
from cer_gpu.sigma.pipelines.sources import LogSource

_RECORDS = LogSource(all_of([Presence("eventSource", True), Presence("eventName", True)]))
"""Every record of CloudTrail says which service was asked for what."""
SERVICES_OF_AWS = ("cloudtrail",)


def sources_of_cloudtrail(product: str | None, category: str | None, service: str | None) -> Sequence[LogSource]:
    """Return the log source of CloudTrail if a rule names it, else ()."""
    is_named = product in (None, "aws") and service in SERVICES_OF_AWS and category is None
    return (_RECORDS,) if is_named else ()


PIPELINES_OF_CLOUDTRAIL = {"cloudtrail": sources_of_cloudtrail}
"""Pipelines by name, as functions from product, category and service to log sources."""
