"""Log sources under the names of the Elastic Common Schema (ECS), as winlogbeat and Elastic's own agent give them.

Windows events with a channel are as in the pipeline ``windows`` under other names, recognised as there by channel
and number: their categories in ECS are too wide, and no others than of winlogbeat's modules.  Others are recognised by
``event.category`` and ``event.type``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from cer_gpu.ceql.paths import string_literal
from cer_gpu.sigma.formulas import (
    GLOB,
    GLOB_CASED,
    DetectionFormula,
    EventColumn,
    FieldTest,
    Negated,
    Presence,
    all_of,
    column,
    some_of,
)
from cer_gpu.sigma.pipelines.registry import RegistryData
from cer_gpu.sigma.pipelines.sources import (
    FieldColumn,
    LogSource,
    has_number,
    has_text,
    over_fields,
    replaced_values,
    with_values,
)
from cer_gpu.sigma.pipelines.windows_logs import (
    CHANNELS,
    SYSMON_EVENTS,
    names_of_defender,
    of_sysmon,
    of_the_security_log,
)

OWN = "winlog.event_data."
"""Beginning of the names of fields that are not moved."""

_OF_SYSTEM: Mapping[str, tuple[str, ...]] = {
    "EventID": ("event.code",),
    "Channel": ("winlog.channel",),
    "Provider_Name": ("event.provider",),
    "Computer": ("host.name", "winlog.computer_name"),
    "ComputerName": ("host.name", "winlog.computer_name"),
}
_PE = {
    "OriginalFileName": "original_file_name",
    "Company": "company",
    "Description": "description",
    "FileVersion": "file_version",
    "Product": "product",
}
_OF_PROCESS = {f: (f"process.pe.{of}",) for f, of in _PE.items()}
_OF_LIBRARY = {f: (f"process.pe.{of}", f"dll.pe.{of}", f"file.pe.{of}") for f, of in _PE.items()}
MOVED: Mapping[str, tuple[str, ...]] = {
    "User": ("User",),
    "LogonId": ("winlog.logon.id",),
    "Image": ("process.executable",),
    "SourceImage": ("process.executable",),
    "CommandLine": ("process.command_line",),
    "CurrentDirectory": ("process.working_directory",),
    "IntegrityLevel": ("process.Ext.token.integrity_level_name",),
    **_OF_PROCESS,
    "ProcessGuid": ("process.entity_id",),
    "ProcessId": ("process.pid",),
    "SourceProcessGuid": ("process.entity_id",),
    "SourceProcessGUID": ("process.entity_id",),
    "SourceProcessId": ("process.pid",),
    "SourceThreadId": ("process.thread.id",),
    "TargetProcessGuid": ("winlog.event_data.TargetProcessGUID",),
    "ParentImage": ("process.parent.executable",),
    "ParentCommandLine": ("process.parent.command_line",),
    "ParentProcessGuid": ("process.parent.entity_id",),
    "ParentProcessId": ("process.parent.pid",),
    "TargetFilename": ("file.path",),
    "TargetObject": ("registry.path",),
    "Details": ("registry.data.strings",),
    "Signed": ("dll.code_signature.exists",),
    "Signature": ("dll.code_signature.subject_name",),
    "SignatureStatus": ("dll.code_signature.status",),
    "QueryName": ("dns.question.name",),
    "DestinationIp": ("destination.ip",),
    "DestinationPort": ("destination.port",),
    "DestinationHostname": ("destination.address", "destination.domain"),
    "DestinationIsIpv6": ("network.type",),
    "SourceIp": ("source.ip",),
    "SourcePort": ("source.port",),
    "SourceHostname": ("source.domain",),
    "SourceIsIpv6": ("network.type",),
    "IpAddress": ("source.ip",),
    "Protocol": ("network.transport",),
    "Initiated": ("network.direction",),
    "RuleName": ("rule.name",),
    "Archived": ("sysmon.file.archived",),
    "IsExecutable": ("sysmon.file.is_executable",),
    "ScriptBlockText": ("powershell.file.script_block_text",),
    "Data": tuple(f"winlog.event_data.param{n}" for n in range(1, 6)),
}
"""Names in ECS by fields of Sigma, the first of which Elastic's own agent gives where it has the field."""

_LIBRARY: Mapping[str, Sequence[FieldColumn]] = {
    "ImageLoaded": (FieldColumn("dll.path"), FieldColumn("file.path", Presence("dll.path", False))),
    **{field: tuple(map(FieldColumn, names)) for field, names in _OF_LIBRARY.items()},
}
_PIPE = (FieldColumn("file.path"), FieldColumn("file.name", Presence("file.path", False)))
OF_CATEGORIES: Mapping[str, Mapping[str, Sequence[FieldColumn]]] = {
    "image_load": _LIBRARY,
    "driver_load": _LIBRARY,
    "pipe_created": {"PipeName": _PIPE},
    "raw_access_thread": {"Device": (FieldColumn("file.path"),)},
    "wmi_event": {"Destination": (FieldColumn("process.executable"),)},
    "process_tampering": {"Type": (FieldColumn("message"),)},
}
"""Names of fields that are elsewhere in the events of a category."""

OF_SECURITY: Mapping[str, tuple[str, ...]] = {
    "NewProcessName": ("process.executable",),
    "NewProcessId": ("process.pid",),
    "ProcessName": ("process.executable",),
    "ParentProcessName": ("process.parent.executable",),
    "SubjectLogonId": ("winlog.logon.id",),
    "IpPort": ("source.port",),
    "WorkstationName": ("source.domain",),
}
"""Names of the fields of the Security log."""

OF_POWERSHELL: Mapping[str, tuple[str, ...]] = {
    "Path": ("file.path",),
    "ScriptBlockId": ("powershell.file.script_block_id",),
    "HostApplication": ("process.command_line",),
}
"""Names of the fields of the logs of PowerShell."""


def columns_having(moved: Mapping[str, Sequence[FieldColumn]]) -> Callable[[str], Sequence[FieldColumn]]:
    """Return the function from a field to the columns that may have it, given the columns of some fields."""
    columns = {field: tuple(map(FieldColumn, names)) for field, names in {**_OF_SYSTEM, **MOVED}.items()} | dict(moved)

    def choices(name: str) -> Sequence[FieldColumn]:
        candidates = columns.get(name, ())
        if name in _OF_SYSTEM or "." in name or name == "@timestamp":
            return candidates
        return (*candidates, FieldColumn(f"{OWN}{name}"))

    return choices


def of_system(name: str) -> str | None:
    """Return the column of a field that all events of Windows have, or None if it is one of some."""
    return _OF_SYSTEM[name][0] if name in _OF_SYSTEM else None


def of_names(names: Mapping[str, tuple[str, ...]]) -> Mapping[str, Sequence[FieldColumn]]:
    """Return names of ECS by fields as columns that may have the fields."""
    return {field: tuple(map(FieldColumn, of)) for field, of in names.items()}


def columns_having_of_defender(name: str) -> Sequence[FieldColumn]:
    """Return the columns of a field of Defender."""
    plain = columns_having({})(name)
    return (*plain, *(FieldColumn(f"{OWN}{each.column}") for each in names_of_defender(name)[1:]))


# ---- values

_HASHES = re.compile(r"(?i)'\*(MD5|SHA1|SHA256|IMPHASH)=([0-9a-f]*)\*'\Z")
_HASHED = {"image_load": ("dll", "file"), "driver_load": ("dll", "file"), "process_creation": ("process",)}


def tests_of_hashes(category: str | None) -> Callable[[FieldTest], DetectionFormula]:
    """Return the function from a test of ``Hashes`` to one of the columns of single hashes, and of all as one text."""
    kinds = _HASHED.get(category or "", ("process", "file"))

    def meant(test: FieldTest) -> DetectionFormula:
        tests: list[DetectionFormula] = [replace(test, field=f"{OWN}{test.field}")]
        if test.kind in (GLOB, GLOB_CASED):
            for value in test.values:
                match = _HASHES.match(value)
                if match is not None:
                    tests += _of_hash(match[1].lower(), match[2], kinds)
        return some_of(tests)

    return meant


def _of_hash(algorithm: str, digits: str, kinds: Sequence[str]) -> list[DetectionFormula]:
    """Return the tests of a hash that begins with some digits, whose letters winlogbeat makes small."""
    below = "pe.imphash" if algorithm == "imphash" else f"hash.{algorithm}"
    return [FieldTest(f"{kind}.{below}", GLOB, (string_literal(f"{digits}*"),)) for kind in kinds]


_DIRECTIONS = {"'true'": ("'egress'", "'true'"), "'false'": ("'ingress'", "'false'")}
_TYPES = {"'true'": ("'ipv6'", "'true'"), "'false'": ("'ipv4'", "'false'")}
_DATA = RegistryData(
    "registry.data.strings", "registry.data.type", ("SZ_DWORD", "REG_DWORD"), ("SZ_QWORD", "REG_QWORD")
)


def _either(table: Mapping[str, tuple[str, ...]]) -> Callable[[FieldTest], FieldTest]:
    return with_values(lambda value: table.get(value.lower(), (value,)))


def _data(test: FieldTest) -> DetectionFormula:
    return some_of([_DATA(test), replace(test, field=f"{OWN}Details")])


def adapted_values(category: str | None) -> Mapping[str, Callable[[FieldTest], DetectionFormula]]:
    """Return the functions for `LogSource.values` of the events of a category."""
    return {
        "Initiated": _either(_DIRECTIONS),
        "DestinationIsIpv6": _either(_TYPES),
        "SourceIsIpv6": _either(_TYPES),
        "Details": _data,
        "Hashes": tests_of_hashes(category),
        "Hash": tests_of_hashes(category),
    }


_USER = EventColumn(r"concat(`user.domain`, '\', `user.name`)", ("user.domain", "user.name"))
FIELDS_OF_ECS: Mapping[str, str | EventColumn] = {
    **{field: names[0] for field, names in MOVED.items()},
    "EventID": "event.code",
    "Channel": "winlog.channel",
    "Provider_Name": "event.provider",
    "Computer": "host.name",
    "ComputerName": "host.name",
    "User": _USER,
    "PipeName": "file.path",
    "ImageLoaded": "dll.path",
    "message": "message",
}
"""Fields of ECS by fields of Sigma; others of Windows are below ``winlog.event_data``."""

_VALUES = {"Initiated": replaced_values({"true": "egress", "false": "ingress"})}
_NO_CHANNEL = Presence("winlog.channel", False)
_IS_LOOKUP = Presence("dns.question.name", True)
_PIPES = has_number("event.code", *SYSMON_EVENTS["pipe_created"])
_POWERSHELL = {
    "ps_module": 4103,
    "ps_script": 4104,
    "ps_classic_start": 400,
    "ps_classic_provider_start": 600,
    "ps_classic_script": 800,
}


def _event_test(category: str, *kinds: str) -> DetectionFormula:
    test = has_text("event.category", category)
    return all_of([test, has_text("event.type", *kinds)]) if kinds else test


def _code_test(category: str, of_sigma: str) -> DetectionFormula:
    return all_of([has_text("event.category", category), has_number("event.code", *SYSMON_EVENTS[of_sigma])])


CATEGORIES: Mapping[str, DetectionFormula] = {
    "process_creation": _event_test("process", "start"),
    "process_termination": _event_test("process", "end"),
    "process_access": _code_test("process", "process_access"),
    "create_remote_thread": _code_test("process", "create_remote_thread"),
    "image_load": _event_test("library"),
    "driver_load": _event_test("driver"),
    "file_event": all_of([_event_test("file", "creation"), Negated(_PIPES)]),
    "file_change": _event_test("file", "change"),
    "file_delete": _event_test("file", "deletion"),
    "file_access": all_of([_event_test("file", "access"), Negated(_PIPES)]),
    "file_rename": all_of([_event_test("file"), has_text("event.action", "rename", "renamed")]),
    "create_stream_hash": _code_test("file", "create_stream_hash"),
    "pipe_created": all_of([_event_test("file"), _PIPES]),
    "registry_set": _event_test("registry", "change"),
    "registry_add": _event_test("registry", "creation"),
    "registry_delete": _event_test("registry", "deletion"),
    "registry_event": _event_test("registry"),
    "dns_query": all_of([has_text("event.category", "network", "dns"), _IS_LOOKUP]),
    "network_connection": all_of([_event_test("network"), Negated(_IS_LOOKUP)]),
    **{category: has_number("event.code", number) for category, number in _POWERSHELL.items()},
}
"""Tests of events by categories of Sigma."""
_CATEGORY_FIELDS = ("event.category", "event.type", "event.code", "winlog.channel")
"""Columns that give the category: the first ones of events of the agent, the others of winlogbeat."""
_BY_NUMBER = ("security", "sysmon")
SYSTEMS = ("windows", "linux", "macos")
"""Products that are systems."""


@lru_cache(maxsize=1_000)
def sources_in_ecs(product: str | None, category: str | None, service: str | None) -> Sequence[LogSource]:
    """Return the log sources that a rule names, under the names of ECS; () if there are none."""
    if product not in (None, *SYSTEMS) or (category is None and service is None and product != "windows"):
        return ()
    if service is not None and (product != "windows" or service not in CHANNELS):
        return ()
    if product in ("linux", "macos"):
        if category is None or category not in CATEGORIES:
            return ()
        return (LogSource(all_of([has_text("host.os.type", product), CATEGORIES[category]]), FIELDS_OF_ECS, _VALUES),)
    if category is None:
        return (_of_windows_at_all() if service is None else _of_service(service),)
    sources = [*_by_category(product, category), *_by_channel(category)]
    if service is None:
        return sources
    channel = _in(service)
    return [replace(source, test=all_of([source.test, channel])) for source in sources if source.test is not None]


def _by_category(product: str | None, category: str) -> Iterator[LogSource]:
    """Yield the events of a category that have no channel."""
    test = CATEGORIES.get(category)
    if test is None and product == "windows" and category in SYSMON_EVENTS:
        test = has_number("event.code", *SYSMON_EVENTS[category])
    if test is not None:
        tests = [test, _NO_CHANNEL] if product is None else [has_text("host.os.type", product), test, _NO_CHANNEL]
        others = str if product is None and category not in SYSMON_EVENTS else _of_windows
        values = adapted_values(category)
        yield LogSource(
            all_of(tests), FIELDS_OF_ECS, values, others, _category_choices(category), category_fields=_CATEGORY_FIELDS
        )


def _by_channel(category: str) -> Iterator[LogSource]:
    """Yield the events of channels of Windows that are of a category."""
    for source in of_sysmon(category):
        assert source.test is not None
        test = over_fields(source.test, _name_of_system)
        values = adapted_values(category)
        yield LogSource(
            test, FIELDS_OF_ECS, values, _of_windows, _category_choices(category), category_fields=_CATEGORY_FIELDS
        )
    for source in of_the_security_log(category):
        yield _of_security_log(category, source)


def _of_security_log(category: str, source: LogSource) -> LogSource:
    """Return a log source of the Security log under the names of ECS."""
    assert source.test is not None
    renamed = {name: _renamed_column(each) for name, each in source.fields.items() if isinstance(each, EventColumn)}
    parent = {"ProcessId": (FieldColumn("process.parent.pid"),)} if category == "process_creation" else {}
    choices = columns_having({**of_names(OF_SECURITY), **parent})
    test = over_fields(source.test, _name_of_system)
    moved = {name: of[0] for name, of in OF_SECURITY.items()} | {name: each[0].column for name, each in parent.items()}
    fields = {**FIELDS_OF_ECS, **moved, **renamed}
    return LogSource(
        test,
        fields,
        {},
        _of_windows,
        lambda name: () if name in renamed else choices(name),
        source,
        category_fields=_CATEGORY_FIELDS,
    )


def _renamed_column(value: EventColumn) -> EventColumn:
    """Return a value computed from columns, with the columns below ``winlog.event_data``."""
    names = {name: f"{OWN}{name}" for name in value.names}
    text = re.sub(
        r"\'[^\']*\'|\w+", lambda match: column(names[match[0]]).text if match[0] in names else match[0], value.text
    )
    return EventColumn(text, tuple(names.values()))


def _of_windows_at_all() -> LogSource:
    test = some_of([has_text("host.os.type", "windows"), Negated(_NO_CHANNEL)])
    return LogSource(test, FIELDS_OF_ECS, adapted_values(None), _of_windows, _category_choices(None))


def _of_service(service: str) -> LogSource:
    """Return the events of a service; of the Security log and of Sysmon they may have no channel."""
    test = has_text("winlog.channel", *CHANNELS[service])
    if service in _BY_NUMBER:
        test = some_of([test, all_of([has_text("host.os.type", "windows"), _NO_CHANNEL])])
    return LogSource(
        test,
        FIELDS_OF_ECS,
        adapted_values(None),
        _of_windows,
        _CHOICES_OF_SERVICES.get(service, _category_choices(None)),
    )


@lru_cache(maxsize=100)
def _category_choices(category: str | None) -> Callable[[str], Sequence[FieldColumn]]:
    powershell = of_names(OF_POWERSHELL) if (category or "").startswith("ps_") else {}
    return columns_having({**OF_CATEGORIES.get(category or "", {}), **powershell})


_CHOICES_OF_SERVICES = {
    "security": columns_having(of_names(OF_SECURITY)),
    "windefend": columns_having_of_defender,
    **dict.fromkeys(("powershell", "powershell-classic"), columns_having(of_names(OF_POWERSHELL))),
}


def _in(service: str) -> DetectionFormula:
    """Return the test of a channel; events of the Security log and of Sysmon may lack it, but have a number."""
    channel = has_text("winlog.channel", *CHANNELS[service])
    return some_of([channel, _NO_CHANNEL]) if service in _BY_NUMBER else channel


def _name_of_system(name: str) -> str:
    return of_system(name) or f"{OWN}{name}"


def _of_windows(name: str) -> str:
    return name if "." in name or name == "@timestamp" else f"{OWN}{name}"


PIPELINES_OF_ECS = {"ecs": sources_in_ecs}
"""Pipelines by name, as functions from product, category and service to log sources."""
