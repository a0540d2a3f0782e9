"""Log sources of Windows: events of Sysmon, of the Security log, of PowerShell and of other channels.

An event has its number in ``EventID`` and its log in ``Channel``; its fields are columns by their own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cer_gpu.sigma.formulas import GLOB, DetectionFormula, EventColumn, FieldTest, Negated, all_of
from cer_gpu.sigma.pipelines.registry import NUMBERS_OF_WINDOWS, RegistryData, paths_of_the_kernel
from cer_gpu.sigma.pipelines.sources import (
    EVERY_EVENT,
    FieldColumn,
    LogSource,
    has_number,
    has_text,
    in_channel,
    replaced_values,
)

SYSMON = ("Microsoft-Windows-Sysmon/Operational",)
SECURITY = ("Security",)
_POWERSHELL = ("Microsoft-Windows-PowerShell/Operational", "PowerShellCore/Operational")
_CLASSIC_POWERSHELL = ("Windows PowerShell",)

SYSMON_EVENTS: Mapping[str, tuple[int, ...]] = {
    "process_creation": (1,),
    "file_change": (2,),
    "network_connection": (3,),
    "sysmon_status": (4, 16),
    "process_termination": (5,),
    "driver_load": (6,),
    "image_load": (7,),
    "create_remote_thread": (8,),
    "raw_access_thread": (9,),
    "process_access": (10,),
    "file_event": (11,),
    "registry_add": (12,),
    "registry_delete": (12,),
    "registry_set": (13,),
    "registry_rename": (14,),
    "registry_event": (12, 13, 14),
    "create_stream_hash": (15,),
    "pipe_created": (17, 18),
    "wmi_event": (19, 20, 21),
    "dns_query": (22,),
    "file_delete": (23, 26),
    "clipboard_capture": (24,),
    "process_tampering": (25,),
    "file_block": (27,),
    "file_block_executable": (27,),
    "file_block_shredding": (28,),
    "file_executable_detected": (29,),
    "sysmon_error": (255,),
}
"""Numbers of the events of Sysmon by categories of Sigma."""

_OTHER_EVENTS: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "ps_module": (_POWERSHELL, (4103,)),
    "ps_script": (_POWERSHELL, (4104,)),
    "ps_classic_start": (_CLASSIC_POWERSHELL, (400,)),
    "ps_classic_provider_start": (_CLASSIC_POWERSHELL, (600,)),
    "ps_classic_script": (_CLASSIC_POWERSHELL, (800,)),
}

_KINDS_OF_EVENT_12: Mapping[str, DetectionFormula] = {
    "registry_add": Negated(has_text("EventType", "DeleteKey", "DeleteValue")),
    "registry_delete": Negated(has_text("EventType", "CreateKey")),
}
"""Event 12 of Sysmon is of keys that are made and of keys and values that are deleted; its EventType may say which."""

_KERNEL_FILE = has_text("Provider_Name", "Microsoft-Windows-Kernel-File")
_FILE_EVENTS = {"file_access": (12,), "file_rename": (19, 27)}

CHANNELS: Mapping[str, tuple[str, ...]] = {
    "security": SECURITY,
    "system": ("System",),
    "application": ("Application",),
    "sysmon": SYSMON,
    "powershell": _POWERSHELL,
    "powershell-classic": _CLASSIC_POWERSHELL,
    "windefend": ("Microsoft-Windows-Windows Defender/Operational",),
    "firewall-as": ("Microsoft-Windows-Windows Firewall With Advanced Security/Firewall",),
    "dns-server": ("DNS Server",),
    "dns-server-audit": ("Microsoft-Windows-DNS-Server/Audit",),
    "dns-server-analytic": ("Microsoft-Windows-DNS-Server/Analytical",),
    "msexchange-management": ("MSExchange Management",),
    "hyper-v-worker": ("Microsoft-Windows-Hyper-V-Worker",),
    "kernel-event-tracing": ("Microsoft-Windows-Kernel-EventTracing",),
    "openssh": ("OpenSSH/Operational",),
    "iis-configuration": ("Microsoft-IIS-Configuration/Operational",),
    "dns-client": ("Microsoft-Windows-DNS Client Events/Operational",),
    **{
        service: tuple(f"Microsoft-Windows-{log}" for log in logs)
        for service, logs in {
            "taskscheduler": ["TaskScheduler/Operational"],
            "wmi": ["WMI-Activity/Operational"],
            "driver-framework": ["DriverFrameworks-UserMode/Operational"],
            "ntlm": ["NTLM/Operational"],
            "dhcp": ["DHCP-Server/Operational"],
            "applocker": [
                f"AppLocker/{kind}"
                for kind in ("MSI and Script", "EXE and DLL", "Packaged app-Deployment", "Packaged app-Execution")
            ],
            "printservice-admin": ["PrintService/Admin"],
            "printservice-operational": ["PrintService/Operational"],
            "codeintegrity-operational": ["CodeIntegrity/Operational"],
            "smbclient-security": ["SmbClient/Security"],
            "smbclient-connectivity": ["SmbClient/Connectivity"],
            "smbserver-connectivity": ["SMBServer/Connectivity"],
            "bits-client": ["Bits-Client/Operational"],
            "terminalservices-localsessionmanager": ["TerminalServices-LocalSessionManager/Operational"],
            "ldap": ["LDAP-Client/Debug"],
            "ldap_debug": ["LDAP-Client/Debug"],
            "security-mitigations": ["Security-Mitigations/Kernel Mode", "Security-Mitigations/User Mode"],
            "diagnosis-scripted": ["Diagnosis-Scripted/Operational"],
            "shell-core": ["Shell-Core/Operational"],
            "bitlocker": ["BitLocker/BitLocker Management"],
            "vhdmp": ["VHDMP/Operational"],
            "appxdeployment-server": ["AppXDeploymentServer/Operational"],
            "appxpackaging-om": ["AppxPackaging/Operational"],
            "appmodel-runtime": ["AppModel-Runtime/Admin"],
            "lsa-server": ["LSA/Operational"],
            "capi2": ["CAPI2/Operational"],
            "certificateservicesclient-lifecycle-system": ["CertificateServicesClient-Lifecycle-System/Operational"],
            "application-experience": [
                "Application-Experience/Program-Telemetry",
                "Application-Experience/Program-Compatibility-Assistant",
            ],
            "kernel-shimengine": ["Kernel-ShimEngine/Operational", "Kernel-ShimEngine/Diagnostic"],
            "ntfs": ["Ntfs/Operational"],
            "sense": ["SENSE/Operational"],
        }.items()
    },
    **dict.fromkeys(
        ("servicebus-client", "microsoft-servicebus-client"),
        ("Microsoft-ServiceBus-Client/Operational", "Microsoft-ServiceBus-Client/Admin"),
    ),
}
"""Channels by services of Sigma."""


def _audited(number: int, fields: Mapping[str, str | EventColumn], **values: Mapping[str, str]) -> LogSource:
    return LogSource(
        in_channel(SECURITY, number), fields, {name: replaced_values(table) for name, table in values.items()}
    )


AUDITED_DATA = RegistryData("NewValue", "NewValueType", **NUMBERS_OF_WINDOWS)
"""Data of event 4657."""
_REGISTRY: Mapping[str, str | EventColumn] = {
    "Image": "ProcessName",
    "Details": "NewValue",
    "TargetObject": EventColumn(r"concat(ObjectName, '\', ObjectValueName)", ("ObjectName", "ObjectValueName")),
}
_DELETED = has_text("OperationType", "%%1906")
_ACCESS = {"FileName": "ObjectName", "TargetFilename": "ObjectName", "Image": "ProcessName"}


def _audited_registry(kind: DetectionFormula | None) -> LogSource:
    test = in_channel(SECURITY, 4657)
    values: Mapping[str, Callable[[FieldTest], DetectionFormula]] = {
        "TargetObject": paths_of_the_kernel,
        "Details": AUDITED_DATA,
    }
    return LogSource(test if kind is None else all_of([test, kind]), _REGISTRY, values)


_SYSTEM, _NETWORK_SERVICE, _TARGET, _SUBJECT = (
    f"account {name}" for name in ("S-1-5-18", "S-1-5-20", "Target", "Subject")
)
_SIDS = {_SYSTEM: "S-1-5-18", _NETWORK_SERVICE: "S-1-5-20"}
_ACCOUNTS: Mapping[str, EventColumn] = {
    _SYSTEM: EventColumn(r"'NT AUTHORITY\SYSTEM'", ()),
    _NETWORK_SERVICE: EventColumn(r"'NT AUTHORITY\NETWORK SERVICE'", ()),
    _TARGET: EventColumn(r"concat(TargetDomainName, '\', TargetUserName)", ("TargetDomainName", "TargetUserName")),
    _SUBJECT: EventColumn(r"concat(SubjectDomainName, '\', SubjectUserName)", ("SubjectDomainName", "SubjectUserName")),
}
"""Accounts of event 4688: system accounts have the name of the machine, so SIDs identify them."""


def _accounts(kind: str, *tests: DetectionFormula) -> Iterator[FieldColumn]:
    """Yield the accounts of the subject or the target of an event."""
    sid = f"{kind}UserSid"
    for name, account_sid in _SIDS.items():
        yield FieldColumn(name, all_of([*tests, has_text(sid, account_sid)]))
    yield FieldColumn(f"account {kind}", all_of([*tests, Negated(has_text(sid, *_SIDS.values()))]))


_HAS_TARGET = FieldTest("TargetUserName", GLOB, ("'[!-]*'", "'-?*'"))
_USERS: Mapping[str, Sequence[FieldColumn]] = {
    "User": (*_accounts("Target", _HAS_TARGET), *_accounts("Subject", Negated(_HAS_TARGET))),
    "ParentUser": tuple(_accounts("Subject")),
}
"""A new process runs as the target if there is one, else as the subject, as which the process runs that made it."""


AUDITED: Mapping[str, LogSource] = {
    "process_creation": replace(
        _audited(
            4688,
            {
                **_ACCOUNTS,
                "Image": "NewProcessName",
                "ParentImage": "ParentProcessName",
                "ProcessId": "NewProcessId",
                "ParentProcessId": "ProcessId",
                "LogonId": "SubjectLogonId",
                "IntegrityLevel": "MandatoryLabel",
            },
            IntegrityLevel={
                "low": "S-1-16-4096",
                "medium": "S-1-16-8192",
                "high": "S-1-16-12288",
                "system": "S-1-16-16384",
            },
        ),
        choices=lambda name: _USERS.get(name, ()),
    ),
    "process_termination": _audited(4689, {"Image": "ProcessName"}),
    "network_connection": _audited(
        5156,
        {
            "Image": "Application",
            "SourceIp": "SourceAddress",
            "DestinationIp": "DestAddress",
            "DestinationPort": "DestPort",
            "Initiated": "Direction",
        },
        Initiated={"true": "%%14593", "false": "%%14592"},
    ),
    "file_access": LogSource(all_of([in_channel(SECURITY, 4663), has_text("ObjectType", "File")]), _ACCESS),
    "registry_set": _audited_registry(Negated(_DELETED)),
    "registry_delete": _audited_registry(_DELETED),
    "registry_event": _audited_registry(None),
}
"""Events of the Security log by categories of Sigma, with its own names of fields."""


CATEGORIES_OF_WINDOWS = (*SYSMON_EVENTS, *_OTHER_EVENTS, *_FILE_EVENTS)
"""Categories of Sigma that events of Windows are of."""


def of_sysmon(category: str) -> Iterator[LogSource]:
    """Yield the events of Sysmon, of PowerShell and of the kernel that are of a category."""
    if category in SYSMON_EVENTS:
        test = in_channel(SYSMON, *SYSMON_EVENTS[category])
        kind = _KINDS_OF_EVENT_12.get(category)
        yield LogSource(test if kind is None else all_of([test, kind]))
    elif category in _OTHER_EVENTS:
        channels, numbers = _OTHER_EVENTS[category]
        yield LogSource(in_channel(channels, *numbers))
    elif category in _FILE_EVENTS:
        yield LogSource(all_of([has_number("EventID", *_FILE_EVENTS[category]), _KERNEL_FILE]))


def of_the_security_log(category: str) -> Iterator[LogSource]:
    """Yield the events of the Security log that are of a category."""
    if category in AUDITED:
        yield AUDITED[category]


_OF_SYSTEM = frozenset(("EventID", "Channel", "Computer", "Provider_Name", "EventRecordID"))
_WORDS = re.compile(r"(?<=[a-z])_?(?=[A-Z])")


def names_of_defender(name: str) -> Sequence[FieldColumn]:
    """Return the columns of a field of Defender, whose names have blanks that rules leave out."""
    spaced = name if name in _OF_SYSTEM else _WORDS.sub(" ", name)
    return () if spaced == name else (FieldColumn(name), FieldColumn(spaced))


def sources_in(
    kinds: Iterable[Callable[[str], Iterable[LogSource]]],
    product: str | None,
    category: str | None,
    service: str | None,
) -> Sequence[LogSource]:
    """Return the log sources of Windows that a rule names; () if it names none.

    Parameters
    ----------
    kinds
        Functions that give the sources of a category.
    product, category, service
        As the rule has them.
    """
    if product not in (None, "windows") or (service is not None and service not in CHANNELS):
        return ()
    if category is None:
        if service is not None:
            return (
                LogSource(in_channel(CHANNELS[service]), choices=names_of_defender if service == "windefend" else None),
            )
        return () if product is None else (EVERY_EVENT,)
    sources = [source for kind in kinds for source in kind(category)]
    if service is None:
        return sources
    channel = in_channel(CHANNELS[service])
    return [replace(source, test=all_of([source.test, channel])) for source in sources if source.test is not None]


PIPELINES = {
    "windows": partial(sources_in, (of_sysmon, of_the_security_log)),
    "sysmon": partial(sources_in, (of_sysmon,)),
    "windows_audit": partial(sources_in, (of_the_security_log,)),
}
"""Pipelines by name, as functions from product, category and service to log sources."""
