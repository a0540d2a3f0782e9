"""Pipelines by name as pipelines of pySigma, which tell each rule its log sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaLogsourceError
from sigma.processing.pipeline import ProcessingItem, ProcessingPipeline
from sigma.processing.transformations.base import DetectionItemTransformation, PreprocessingTransformation
from sigma.rule import SigmaDetectionItem, SigmaRule
from sigma.types import SigmaFieldReference

from cer_gpu.errors import nearest
from cer_gpu.sigma.pipelines.cloudtrail import PIPELINES_OF_CLOUDTRAIL, SERVICES_OF_AWS
from cer_gpu.sigma.pipelines.ecs import CATEGORIES, PIPELINES_OF_ECS, SYSTEMS
from cer_gpu.sigma.pipelines.linux import PIPELINES_OF_LINUX, SERVICES_OF_LINUX
from cer_gpu.sigma.pipelines.sources import CHOSEN, EVERY_EVENT, LogSource
from cer_gpu.sigma.pipelines.windows import CATEGORIES_OF_WINDOWS, CHANNELS, PIPELINES
from cer_gpu.sigma.pipelines.zeek import CATEGORIES_OF_ZEEK, PIPELINES_OF_ZEEK, SERVICES_OF_ZEEK

Find = Callable[[str | None, str | None, str | None], Sequence[LogSource]]
FINDERS: dict[str, Find] = {
    **PIPELINES,
    **PIPELINES_OF_ECS,
    **PIPELINES_OF_LINUX,
    **PIPELINES_OF_CLOUDTRAIL,
    **PIPELINES_OF_ZEEK,
}
"""Functions from product, category and service to log sources, by names of pipelines."""
_NAMES = {
    "product": (*SYSTEMS, "aws", "zeek"),
    "category": tuple(dict.fromkeys((*CATEGORIES_OF_WINDOWS, *CATEGORIES, *CATEGORIES_OF_ZEEK))),
    "service": tuple(dict.fromkeys((*CHANNELS, *SERVICES_OF_LINUX, *SERVICES_OF_AWS, *SERVICES_OF_ZEEK))),
}
"""Names in log sources that some pipeline knows."""
_TAKEN = "cer_gpu_sources"


class UnknownLogSourceError(SigmaLogsourceError):
    """Error of a rule about a log source that the pipelines do not know."""


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
    UnknownLogSourceError
        When the pipelines know none.
    """
    told = rule.custom_attributes.get(_TAKEN)
    if told is None:
        return (EVERY_EVENT,)
    found = [source for sources in told.values() for source in sources]
    if not found:
        near = _nearest_source(tuple(told), *(getattr(rule.logsource, name) for name in _NAMES))
        hint = f"\nhint: did you mean {near}?" if near else ""
        raise UnknownLogSourceError(
            f"the log source ({words_of_source(rule)}) is none of the pipeline {' or '.join(told)}{hint}"
        )
    return found


def words_of_source(rule: SigmaRule) -> str:
    """Return the log source that a rule names, in words."""
    own = {name: getattr(rule.logsource, name) for name in _NAMES}
    return ", ".join(f"{name} {value}" for name, value in own.items() if value is not None)


@lru_cache(maxsize=1_000)
def _nearest_source(pipelines: tuple[str, ...], *names: str | None) -> str | None:
    """Return the nearest product, category or service by which pipelines know a log source; None: there is none."""
    for place, (kind, known) in enumerate(_NAMES.items()):
        asked = names[place]
        if asked is None:
            continue
        tried = {each: (*names[:place], each, *names[place + 1 :]) for each in known}
        near = nearest(asked, (each for each, all_three in tried.items() if _is_known(pipelines, *all_three)))
        if near is not None:
            return f"{kind} {near!r}"
    return None


def _is_known(pipelines: tuple[str, ...], product: str | None, category: str | None, service: str | None) -> bool:
    return any(FINDERS[name](product, category, service) for name in pipelines)


def pipeline_named(name: str) -> ProcessingPipeline:
    """Return a pipeline of this package, for pySigma."""
    item = ProcessingItem(transformation=LogSourceTransformation(name), identifier=f"cer_gpu_{name}")
    return ProcessingPipeline(
        items=[item], name=f"cer_gpu_{name}", priority=90, allowed_backends=frozenset({"cer_gpu"})
    )


@dataclass
class ChosenColumnsTransformation(DetectionItemTransformation):
    """The step that puts columns that were asked for in the place of fields, before all other steps.

    Attributes
    ----------
    columns : mapping from str to str
    """

    columns: Mapping[str, str]

    def apply_detection_item(self, detection_item: SigmaDetectionItem) -> None:
        """Rename the field of a test, and the one that it is compared with."""
        if detection_item.field is not None and detection_item.field in self.columns:
            detection_item.field = CHOSEN + self.columns[detection_item.field]
        for value in detection_item.value:
            if isinstance(value, SigmaFieldReference) and value.field in self.columns:
                value.field = CHOSEN + self.columns[value.field]


def chosen_columns(columns: Mapping[str, str]) -> ProcessingPipeline:
    """Return the pipeline that comes before all others."""
    item = ProcessingItem(transformation=ChosenColumnsTransformation(columns), identifier="cer_gpu_columns")
    return ProcessingPipeline(items=[item], priority=-1_000_000)
