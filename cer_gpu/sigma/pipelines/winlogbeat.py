"""Fields of Windows events where winlogbeat and Elastic's agent put them: what moves, and what stays.

The modules of winlogbeat move many fields of Sysmon, of the Security log and of PowerShell to names of the Elastic
Common Schema.  Others, and all of other logs, stay below ``winlog.event_data`` by their own names, as all do where the
modules do not run.  A field is therefore the first name here, or another one, whichever the events have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cer_gpu.ceql.paths import string_literal
from cer_gpu.sigma.formulas import GLOB, GLOB_CASED, DetectionFormula, FieldTest, Presence, some_of
from cer_gpu.sigma.pipelines.registry import RegistryData
from cer_gpu.sigma.pipelines.sources import FieldColumn, with_values
from cer_gpu.sigma.pipelines.windows import names_of_defender

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
    """Return the function from a field to the columns that may have it, given those of some fields."""
    known = {field: tuple(map(FieldColumn, names)) for field, names in {**_OF_SYSTEM, **MOVED}.items()} | dict(moved)

    def choices(name: str) -> Sequence[FieldColumn]:
        found = known.get(name, ())
        if name in _OF_SYSTEM or "." in name or name == "@timestamp":
            return found
        return (*found, FieldColumn(f"{OWN}{name}"))

    return choices


def of_system(name: str) -> str | None:
    """Return the column of a field that all events of Windows have; None: it is one of some."""
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
