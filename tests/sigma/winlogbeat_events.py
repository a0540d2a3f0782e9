"""Windows events, flat by their own names, as winlogbeat writes them: with its modules, and without.

The modules are pipelines that Elasticsearch runs: that of Sysmon moves most fields, that of the Security log some, that
of PowerShell the texts of scripts.  A field that is moved is gone from ``winlog.event_data``; one that is only copied
stays.  Values that say nothing (empty, ``-``) are dropped.
"""

from __future__ import annotations

import re
from typing import Any

Event = dict[str, Any]
OWN = "winlog.event_data."
SYSMON = "microsoft-windows-sysmon/operational"
SECURITY = "security"
SYSTEM = {"EventID": "event.code", "Channel": "winlog.channel", "Provider_Name": "event.provider"}
NOTHING = ("", "-", "{00000000-0000-0000-0000-000000000000}")
CATEGORIES = {
    **dict.fromkeys((1,), ("process", "start")),
    **dict.fromkeys((5,), ("process", "end")),
    **dict.fromkeys((7, 8, 25), ("process", "change")),
    **dict.fromkeys((9, 10), ("process", "access")),
    3: ("network", "connection"),
    22: ("network", "info"),
    6: ("driver", "start"),
    2: ("file", "change"),
    **dict.fromkeys((11, 17, 27, 29), ("file", "creation")),
    **dict.fromkeys((15, 18), ("file", "access")),
    **dict.fromkeys((23, 26, 28), ("file", "deletion")),
    **dict.fromkeys((12, 13, 14), ("registry", "change")),
}
MOVED = {
    "ProcessGuid": "process.entity_id",
    "SourceProcessGuid": "process.entity_id",
    "SourceProcessGUID": "process.entity_id",
    "ProcessId": "process.pid",
    "SourceProcessId": "process.pid",
    "Image": "process.executable",
    "SourceImage": "process.executable",
    "Destination": "process.executable",
    "CommandLine": "process.command_line",
    "CurrentDirectory": "process.working_directory",
    "ParentProcessGuid": "process.parent.entity_id",
    "ParentProcessId": "process.parent.pid",
    "ParentImage": "process.parent.executable",
    "ParentCommandLine": "process.parent.command_line",
    "TargetFilename": "file.path",
    "Device": "file.path",
    "PipeName": "file.name",
    "ImageLoaded": "file.path",
    "Protocol": "network.transport",
    "SourceIp": "source.ip",
    "SourcePort": "source.port",
    "SourceHostname": "source.domain",
    "DestinationIp": "destination.ip",
    "DestinationPort": "destination.port",
    "DestinationHostname": "destination.domain",
    "QueryName": "dns.question.name",
    "TargetObject": "registry.path",
    "RuleName": "rule.name",
}
COPIED = {"Company": "company", "Description": "description", "FileVersion": "file_version", "Product": "product"}
GONE = ("QueryResults", "UtcTime")
DWORD = re.compile(r"(?i)DWORD \((0x[0-9a-f]{8})\)")
QWORD = re.compile(r"(?i)QWORD \((0x[0-9a-f]{8})-(0x[0-9a-f]{8})\)")


def without_modules(event: Event) -> Event:
    """Return an event as winlogbeat itself writes it."""
    of_system = {SYSTEM[name]: str(event[name]) for name in SYSTEM if event.get(name) is not None}
    event = {"param1" if name == "Data" else name: each for name, each in event.items()}  # it has no name of its own
    own = {f"{OWN}{name}": each for name, each in event.items() if name not in SYSTEM and each is not None}
    return {**of_system, "host.os.type": "windows", **own}


def with_modules(event: Event) -> Event:
    """Return an event as Elasticsearch has it behind the pipelines of winlogbeat's modules."""
    made = without_modules(event)
    channel = str(event.get("Channel")).lower()
    if channel == SYSMON:
        _of_sysmon(made)
    elif channel == SECURITY:
        _of_security(made)
    elif "powershell" in channel:
        if event.get("ScriptBlockText") is not None:
            made["powershell.file.script_block_text"] = made.pop(f"{OWN}ScriptBlockText")
        for name in ("ContextInfo", "Payload", "param1"):  # taken apart
            made.pop(f"{OWN}{name}", None)
    return made


def _of_sysmon(made: Event) -> None:
    for name in [name for name, value in made.items() if name.startswith(OWN) and value in NOTHING]:
        del made[name]
    code = made["event.code"]
    category, kind = CATEGORIES.get(int(code), (None, None))
    made |= {"event.category": category and [category], "event.type": kind and [kind], "event.module": "sysmon"}
    is_image = code == "7"
    _hashes(made, "file" if code in ("6", "7", "15", "29") else "process")
    _user(made)
    _registry(made)
    original = made.pop(f"{OWN}OriginalFileName", None)
    made["file.pe.original_file_name" if is_image else "process.pe.original_file_name"] = original
    for name, of in COPIED.items():
        made[f"file.pe.{of}" if is_image else f"process.pe.{of}"] = made.get(f"{OWN}{name}")
    made["network.direction"] = {"true": "egress", "false": "ingress"}.get(made.pop(f"{OWN}Initiated", None))
    for name, new in MOVED.items():
        if made.get(f"{OWN}{name}") is not None:
            made[new] = made.pop(f"{OWN}{name}")
    for name in GONE:
        made.pop(f"{OWN}{name}", None)


def _hashes(made: Event, kind: str) -> None:
    text = made.pop(f"{OWN}Hashes", None) or made.pop(f"{OWN}Hash", None)
    for algorithm, digits in (each.split("=", 1) for each in (text or "").split(",") if "=" in each):
        if digits.strip("0"):
            below = "pe.imphash" if algorithm.lower() == "imphash" else f"hash.{algorithm.lower()}"
            made[f"{kind}.{below}"] = digits.lower()


def _user(made: Event) -> None:
    parts = (made.pop(f"{OWN}User", None) or "").split("\\")
    if len(parts) == 2:
        made["user.domain"], made["user.name"] = parts


def _registry(made: Event) -> None:
    data = made.pop(f"{OWN}Details", None)
    if data is None:
        return
    if number := DWORD.fullmatch(data):
        data, kind = str(int(number[1], 16)), "SZ_DWORD"
    elif number := QWORD.fullmatch(data):
        data, kind = str((int(number[1], 16) << 8) + int(number[2], 16)), "SZ_QWORD"
    else:
        kind = "REG_BINARY" if data == "Binary Data" else "REG_SZ"
    made |= {"registry.data.strings": [data], "registry.data.type": kind}


def _of_security(made: Event) -> None:
    code = made["event.code"]
    if code == "4688":
        made |= {"event.category": ["process"], "event.type": ["start"]}
        moved = {"NewProcessName": "process.executable", "ParentProcessName": "process.parent.executable"}
        made["process.command_line"] = made.get(f"{OWN}CommandLine")
    elif code in ("4624", "4625", "4648", "4673", "4674", "4689", "4697", "4768", "4769", "5140", "5145"):
        moved = {"ProcessName": "process.executable", "WorkstationName": "source.domain"}
        if made.get(f"{OWN}IpAddress") not in (None, "-"):
            moved["IpAddress"] = "source.ip"
    else:
        moved = {}
    for name, new in moved.items():
        if made.get(f"{OWN}{name}") is not None:
            made[new] = made.pop(f"{OWN}{name}")
    made["user.name"], made["user.domain"] = (made.get(f"{OWN}Subject{of}Name") for of in ("User", "Domain"))
