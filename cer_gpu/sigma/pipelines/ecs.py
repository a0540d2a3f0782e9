"""Log sources under the names of the Elastic Common Schema (ECS), as winlogbeat and Elastic's own agent give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cer_gpu.sigma.formulas import DetectionFormula, EventColumn, Negated, Presence, all_of, some_of
from cer_gpu.sigma.pipelines.sources import LogSource, has_number, has_text, replaced_values
from cer_gpu.sigma.pipelines.windows import CHANNELS, SYSMON_EVENTS

_USER = EventColumn(r"concat(`user.domain`, '\', `user.name`)", ("user.domain", "user.name"))
FIELDS_OF_ECS: Mapping[str, str | EventColumn] = {
    "EventID": "event.code",
    "Channel": "winlog.channel",
    "Provider_Name": "event.provider",
    "Computer": "host.name",
    "ComputerName": "host.name",
    "User": _USER,
    "LogonId": "winlog.logon.id",
    "Image": "process.executable",
    "SourceImage": "process.executable",
    "CommandLine": "process.command_line",
    "CurrentDirectory": "process.working_directory",
    "OriginalFileName": "process.pe.original_file_name",
    "IntegrityLevel": "process.Ext.token.integrity_level_name",
    "Company": "process.pe.company",
    "Description": "process.pe.description",
    "FileVersion": "process.pe.file_version",
    "Product": "process.pe.product",
    "ProcessGuid": "process.entity_id",
    "ProcessId": "process.pid",
    "ParentImage": "process.parent.executable",
    "ParentCommandLine": "process.parent.command_line",
    "ParentProcessGuid": "process.parent.entity_id",
    "ParentProcessId": "process.parent.pid",
    "TargetFilename": "file.path",
    "PipeName": "file.path",
    "TargetObject": "registry.path",
    "Details": "registry.data.strings",
    "ImageLoaded": "dll.path",
    "Signed": "dll.code_signature.exists",
    "Signature": "dll.code_signature.subject_name",
    "SignatureStatus": "dll.code_signature.status",
    "QueryName": "dns.question.name",
    "DestinationIp": "destination.ip",
    "DestinationPort": "destination.port",
    "DestinationHostname": "destination.address",
    "SourceIp": "source.ip",
    "SourcePort": "source.port",
    "IpAddress": "source.ip",
    "Protocol": "network.transport",
    "Initiated": "network.direction",
    "ScriptBlockText": "powershell.file.script_block_text",
}
"""Fields of ECS by those of Sigma; others of Windows are below ``winlog.event_data``."""

_VALUES = {"Initiated": replaced_values({"true": "egress", "false": "ingress"})}
_IS_LOOKUP = Presence("dns.question.name", True)
_PIPES = has_number("event.code", *SYSMON_EVENTS["pipe_created"])
_POWERSHELL = {
    "ps_module": 4103,
    "ps_script": 4104,
    "ps_classic_start": 400,
    "ps_classic_provider_start": 600,
    "ps_classic_script": 800,
}


def _event(category: str, *kinds: str) -> DetectionFormula:
    test = has_text("event.category", category)
    return all_of([test, has_text("event.type", *kinds)]) if kinds else test


def _code(category: str, of_sigma: str) -> DetectionFormula:
    return all_of([has_text("event.category", category), has_number("event.code", *SYSMON_EVENTS[of_sigma])])


CATEGORIES: Mapping[str, DetectionFormula] = {
    "process_creation": _event("process", "start"),
    "process_termination": _event("process", "end"),
    "process_access": _code("process", "process_access"),
    "create_remote_thread": _code("process", "create_remote_thread"),
    "image_load": _event("library"),
    "driver_load": _event("driver"),
    "file_event": all_of([_event("file", "creation"), Negated(_PIPES)]),
    "file_change": _event("file", "change"),
    "file_delete": _event("file", "deletion"),
    "file_access": all_of([_event("file", "access"), Negated(_PIPES)]),
    "file_rename": all_of([_event("file"), has_text("event.action", "rename", "renamed")]),
    "create_stream_hash": _code("file", "create_stream_hash"),
    "pipe_created": all_of([_event("file"), _PIPES]),
    "registry_set": _event("registry", "change"),
    "registry_add": _event("registry", "creation"),
    "registry_delete": _event("registry", "deletion"),
    "registry_event": _event("registry"),
    "dns_query": all_of([has_text("event.category", "network", "dns"), _IS_LOOKUP]),
    "network_connection": all_of([_event("network"), Negated(_IS_LOOKUP)]),
    **{category: has_number("event.code", number) for category, number in _POWERSHELL.items()},
}
"""Tests of events by categories of Sigma."""
_BY_NUMBER = ("security", "sysmon")
SYSTEMS = ("windows", "linux", "macos")
"""Products that are systems."""


def sources_in_ecs(product: str | None, category: str | None, service: str | None) -> Sequence[LogSource]:
    """Return the log source that a rule names, as one under the names of ECS; (): there is none."""
    if product not in (None, *SYSTEMS) or (category is None and service is None):
        return ()
    tests = [] if product is None else [has_text("host.os.type", product)]
    if category is not None:
        if category in CATEGORIES:
            tests.append(CATEGORIES[category])
        elif product == "windows" and category in SYSMON_EVENTS:
            tests += [has_number("event.code", *SYSMON_EVENTS[category]), _in("sysmon")]
        else:
            return ()
    if service is not None:
        if product != "windows" or service not in CHANNELS:
            return ()
        tests.append(_in(service))
    others = _of_windows if product == "windows" else str
    return (LogSource(all_of(tests), FIELDS_OF_ECS, _VALUES, others),)


def _in(service: str) -> DetectionFormula:
    """Return the test of a channel; events of the Security log and of Sysmon may have none, and are told by numbers."""
    channel = has_text("winlog.channel", *CHANNELS[service])
    return some_of([channel, Presence("winlog.channel", False)]) if service in _BY_NUMBER else channel


def _of_windows(name: str) -> str:
    return name if "." in name or name == "@timestamp" else f"winlog.event_data.{name}"


PIPELINES_OF_ECS = {"ecs": sources_in_ecs}
"""Pipelines by name, as functions from product, category and service to log sources."""
