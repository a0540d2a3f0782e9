"""Pipelines by name as pipelines of pySigma, which tell each rule its log sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaLogsourceError
from sigma.processing.pipeline import ProcessingItem, ProcessingPipeline
from sigma.processing.transformations.base import PreprocessingTransformation
from sigma.rule import SigmaRule

from cer_gpu.sigma.pipelines.ecs import PIPELINES_OF_ECS
from cer_gpu.sigma.pipelines.sources import EVERY_EVENT, LogSource
from cer_gpu.sigma.pipelines.windows import PIPELINES

Find = Callable[[str | None, str | None, str | None], Sequence[LogSource]]
FINDERS: dict[str, Find] = {**PIPELINES, **PIPELINES_OF_ECS}
"""Functions from product, category and service to log sources, by names of pipelines."""
_TAKEN = "cer_gpu_sources"


@dataclass
class LogSourceTransformation(PreprocessingTransformation):
    """The step of a pipeline that finds the log sources of a rule, which the back end tests first.

    Attributes
    ----------
    name : str
        One of `FINDERS`.
    """

    name: str

    def apply(self, rule: SigmaRule | SigmaCorrelationRule) -> None:
        """Tell a rule its log sources."""
        if isinstance(rule, SigmaRule):
            source = rule.logsource
            found = FINDERS[self.name](source.product, source.category, source.service)
            rule.custom_attributes.setdefault(_TAKEN, {})[self.name] = found
        super().apply(rule)


def sources_of(rule: SigmaRule) -> Sequence[LogSource]:
    """Return the log sources that pipelines have told a rule.

    Raises
    ------
    SigmaLogsourceError
        When the pipelines know none.
    """
    told = rule.custom_attributes.get(_TAKEN)
    if told is None:
        return (EVERY_EVENT,)
    found = [source for sources in told.values() for source in sources]
    if not found:
        own = {name: getattr(rule.logsource, name) for name in ("product", "category", "service")}
        words = ", ".join(f"{name} {value}" for name, value in own.items() if value is not None)
        raise SigmaLogsourceError(f"the log source ({words}) is none of the pipeline {' or '.join(told)}")
    return found


def pipeline_named(name: str) -> ProcessingPipeline:
    """Return a pipeline of this package, for pySigma."""
    item = ProcessingItem(transformation=LogSourceTransformation(name), identifier=f"cer_gpu_{name}")
    return ProcessingPipeline(
        items=[item], name=f"cer_gpu_{name}", priority=90, allowed_backends=frozenset({"cer_gpu"})
    )


GENERATORS = {f"cer_gpu_{name}": partial(pipeline_named, name) for name in FINDERS}
"""Pipelines for the plugins of pySigma."""
