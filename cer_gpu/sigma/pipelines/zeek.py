"""Log sources of Zeek: the log that a record is of in ``_path``, and fields by the names of Zeek.

Rules about a kind of traffic whatever records it (``category: proxy``) have names of their own for fields of a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cer_gpu.sigma.formulas import EventColumn, Presence
from cer_gpu.sigma.pipelines.sources import LogSource, has_text

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
"""The address that a proxy is asked for; Zeek has the host apart, and reads no encrypted traffic."""
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
        found = CATEGORIES_OF_ZEEK.get(category)
        return () if found is None or service is not None else (found,)
    if service is None:
        return () if product is None else (_ANY_LOG,)
    name = _OTHER_NAMES.get(service, service)
    return (_log(name, _FIELDS.get(name, _ENDS)),) if name in SERVICES_OF_ZEEK else ()


PIPELINES_OF_ZEEK = {"zeek": sources_of_zeek}
"""Pipelines by name, as functions from product, category and service to log sources."""
