"""Pipelines by name as pipelines of pySigma, which assign log sources to each rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaLogsourceError
from sigma.processing.pipeline import ProcessingItem, ProcessingPipeline
from sigma.processing.transformations.base import DetectionItemTransformation, PreprocessingTransformation
from sigma.rule import SigmaDetectionItem, SigmaRule
from sigma.types import SigmaFieldReference

from cer_gpu.errors import nearest
from cer_gpu.sigma.formulas import DetectionFormula, EventColumn, Presence, all_of
from cer_gpu.sigma.pipelines.ecs import CATEGORIES, PIPELINES_OF_ECS, SYSTEMS
from cer_gpu.sigma.pipelines.sources import CHOSEN, EVERY_EVENT, LogSource, has_text, in_channel
from cer_gpu.sigma.pipelines.windows_logs import CATEGORIES_OF_WINDOWS, CHANNELS, PIPELINES, SYSMON_EVENTS

SERVICES_OF_ZEEK = (
    "analyzer",
    "auth",
    "capture_loss",
    "cluster",
    "communication",
    "config",
    "conn",
    "dce_rpc",
    "dhcp",
    "dnp3",
    "dns",
    "dpd",
    "files",
    "ftp",
    "http",
    "http2",
    "intel",
    "irc",
    "kerberos",
    "known_certs",
    "known_hosts",
    "known_modbus",
    "known_services",
    "ldap",
    "ldap_search",
    "modbus",
    "modbus_register_change",
    "mqtt_connect",
    "mqtt_publish",
    "mqtt_subscribe",
    "mysql",
    "netcontrol",
    "notice",
    "notice_alarm",
    "ntlm",
    "ntp",
    "ocsp",
    "pe",
    "pop3",
    "postgresql",
    "quic",
    "radius",
    "rdp",
    "redis",
    "rfb",
    "signatures",
    "sip",
    "smb_cmd",
    "smb_files",
    "smb_mapping",
    "smtp",
    "snmp",
    "socks",
    "software",
    "ssh",
    "ssl",
    "stats",
    "syslog",
    "telemetry",
    "traceroute",
    "tunnel",
    "weird",
    "websocket",
    "x509",
)
"""Logs of Zeek, by which Sigma names services."""
_OTHER_NAMES = {"tls": "ssl", "rpc": "dce_rpc"}

_ENDS: Mapping[str, str | EventColumn] = {
    "src_ip": "id.orig_h",
    "src_port": "id.orig_p",
    "dst_ip": "id.resp_h",
    "dst_port": "id.resp_p",
    "c-ip": "id.orig_h",
    "s-ip": "id.resp_h",
}
_FIELDS_OF_HTTP: Mapping[str, str | EventColumn] = {
    **_ENDS,
    "c-uri": "uri",
    "c-uri-query": "uri",
    "cs-uri": "uri",
    "cs-uri-query": "uri",
    "cs-uri-stem": "uri",
    "c-useragent": "user_agent",
    "cs-user-agent": "user_agent",
    "cs-method": "method",
    "cs-host": "host",
    "r-dns": "host",
    "cs-referer": "referrer",
    "cs-referrer": "referrer",
    "cs-version": "version",
    "cs-username": "username",
    "cs-bytes": "request_body_len",
    "sc-bytes": "response_body_len",
    "sc-status": "status_code",
}
_WHOLE_URI = EventColumn("concat('http://', host, uri)", ("host", "uri"))
"""The address requested from a proxy; Zeek has the host apart, and reads no encrypted traffic."""
_FIELDS_OF_DNS: Mapping[str, str | EventColumn] = {**_ENDS, "answer": "answers", "record_type": "qtype_name"}


def _log(name: str, fields: Mapping[str, str | EventColumn] = _ENDS) -> LogSource:
    return LogSource(has_text("_path", name), fields)


_ANY_LOG = LogSource(Presence("_path", True), _ENDS)
_FIELDS = {"http": _FIELDS_OF_HTTP, "dns": _FIELDS_OF_DNS}
CATEGORIES_OF_ZEEK: Mapping[str, LogSource] = {
    "dns": _log("dns", _FIELDS_OF_DNS),
    "firewall": _log("conn"),
    "proxy": _log("http", {**_FIELDS_OF_HTTP, "c-uri": _WHOLE_URI, "cs-uri": _WHOLE_URI}),
    "webserver": _log("http", _FIELDS_OF_HTTP),
}
"""Logs by categories of Sigma."""


def sources_of_zeek(product: str | None, category: str | None, service: str | None) -> Sequence[LogSource]:
    """Return the log of Zeek that a rule names; () if it names none."""
    if product not in (None, "zeek"):
        return ()
    if category is not None:
        source = CATEGORIES_OF_ZEEK.get(category)
        return () if source is None or service is not None else (source,)
    if service is None:
        return () if product is None else (_ANY_LOG,)
    name = _OTHER_NAMES.get(service, service)
    return (_log(name, _FIELDS.get(name, _ENDS)),) if name in SERVICES_OF_ZEEK else ()


PIPELINES_OF_ZEEK = {"zeek": sources_of_zeek}
"""Pipelines by name, as functions from product, category and service to log sources."""


SYSMON_FOR_LINUX = ("Linux-Sysmon/Operational",)
_CATEGORIES = (
    "process_creation",
    "network_connection",
    "sysmon_status",
    "process_termination",
    "raw_access_thread",
    "process_access",
    "file_event",
    "file_delete",
    "sysmon_error",
)
"""Categories of Sigma of which Sysmon for Linux has events, under the numbers of Sysmon for Windows."""

_LINE = all_of([Presence("type", False), Presence("Channel", False)])
"""Lines that programs write to syslog: what is neither of auditd nor of Sysmon.

No column has the program's name whatever has read the line, so that the rules of one service are tested on the lines of
all; keywords are searched in all string columns.
"""
SERVICES_OF_LINUX: Mapping[str, DetectionFormula] = {
    "sysmon": in_channel(SYSMON_FOR_LINUX),
    "auditd": Presence("type", True),
    **dict.fromkeys(("auth", "clamav", "cron", "guacamole", "sshd", "sudo", "syslog", "vsftpd"), _LINE),
}
"""Tests of events by services of Sigma."""


def sources_of_linux(product: str | None, category: str | None, service: str | None) -> Sequence[LogSource]:
    """Return the log source of Linux that a rule names; () if it names none of these."""
    if product not in (None, "linux") or (service is not None and service not in SERVICES_OF_LINUX):
        return ()
    if category is None:
        if service is not None:
            return (LogSource(SERVICES_OF_LINUX[service]),)
        return () if product is None else (EVERY_EVENT,)
    if category not in _CATEGORIES:
        return ()
    source = LogSource(in_channel(SYSMON_FOR_LINUX, *SYSMON_EVENTS[category]))
    if service in (None, "sysmon"):
        return (source,)
    return (replace(source, test=all_of([source.test, SERVICES_OF_LINUX[service]])),) if source.test else ()


PIPELINES_OF_LINUX = {"linux": sources_of_linux}
"""Pipelines by name, as functions from product, category and service to log sources."""


_RECORDS = LogSource(all_of([Presence("eventSource", True), Presence("eventName", True)]))
"""Every record of CloudTrail names the service and the request."""
SERVICES_OF_AWS = ("cloudtrail",)


def sources_of_cloudtrail(product: str | None, category: str | None, service: str | None) -> Sequence[LogSource]:
    """Return the log source of CloudTrail if a rule names it, else ()."""
    is_named = product in (None, "aws") and service in SERVICES_OF_AWS and category is None
    return (_RECORDS,) if is_named else ()


PIPELINES_OF_CLOUDTRAIL = {"cloudtrail": sources_of_cloudtrail}
"""Pipelines by name, as functions from product, category and service to log sources."""


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
_SOURCES_KEY = "cer_gpu_sources"


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
            sources = FINDERS[self.name](source.product, source.category, source.service)
            rule.custom_attributes.setdefault(_SOURCES_KEY, {})[self.name] = sources
        super().apply(rule)


def sources_of(rule: SigmaRule) -> Sequence[LogSource]:
    """Return the log sources that pipelines assigned to a rule.

    Raises
    ------
    UnknownLogSourceError
        When the pipelines know none.
    """
    by_pipeline = rule.custom_attributes.get(_SOURCES_KEY)
    if by_pipeline is None:
        return (EVERY_EVENT,)
    log_sources = [source for sources in by_pipeline.values() for source in sources]
    if not log_sources:
        near = _nearest_source(tuple(by_pipeline), *(getattr(rule.logsource, name) for name in _NAMES))
        hint = f"\nhint: did you mean {near}?" if near else ""
        raise UnknownLogSourceError(
            f"the log source ({words_of_source(rule)}) is none of the pipeline {' or '.join(by_pipeline)}{hint}"
        )
    return log_sources


def words_of_source(rule: SigmaRule) -> str:
    """Return the log source that a rule names, in words."""
    own = {name: getattr(rule.logsource, name) for name in _NAMES}
    return ", ".join(f"{name} {value}" for name, value in own.items() if value is not None)


@lru_cache(maxsize=1_000)
def _nearest_source(pipelines: tuple[str, ...], *names: str | None) -> str | None:
    """Return the nearest product, category or service that pipelines know, or None if there is none."""
    for place, (kind, candidates) in enumerate(_NAMES.items()):
        name = names[place]
        if name is None:
            continue
        tried = {each: (*names[:place], each, *names[place + 1 :]) for each in candidates}
        near = nearest(name, (each for each, all_three in tried.items() if _is_known(pipelines, *all_three)))
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
    """The step that maps fields to the requested columns, before all other steps.

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
