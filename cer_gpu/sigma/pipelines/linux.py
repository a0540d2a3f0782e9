"""Log sources of Linux: events of Sysmon for Linux, records of auditd, and lines of other programs.

Events of Sysmon have ``EventID`` and ``Channel``, records of auditd ``type``; fields are columns by their own names.
A record of auditd is one line of several that an event has, so that no record has both the program and the command
line that a rule of ``process_creation`` tests: such rules are of Sysmon alone, as in SigmaHQ's list of log sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cer_gpu.sigma.formulas import DetectionFormula, Presence, all_of
from cer_gpu.sigma.pipelines.sources import EVERY_EVENT, LogSource, in_channel
from cer_gpu.sigma.pipelines.windows import SYSMON_EVENTS

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
all; keywords are sought in all columns of texts.
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
