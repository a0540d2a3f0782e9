"""Times of pages without scripts in their own zone, and in UTC on request: a switch of style shows one or the other."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cer_gpu.printable import html_text

_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(\.\d+)?Z")
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_UTC = re.compile(r"UTC|GMT|Etc/(UTC|GMT)|Z|[+-]00:?00")


def zone_of(name: str | None) -> tzinfo | None:
    """Return the zone of a name, such as ``Europe/Paris`` or ``+02:00``, or None for UTC, and for an unknown one."""
    if not name or _UTC.fullmatch(name):
        return None
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-length if offset[1] == "-" else length, name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def in_zone(text: str, zone: tzinfo | None) -> str:
    """Return a time of UTC as text, ``2013-07-12T18:04:00.120Z``, in a zone; any other text as it is.

    Examples
    --------
    >>> from cer_gpu.report.zones import in_zone, zone_of
    >>> in_zone("2013-07-12T18:04:00.120Z", zone_of("Europe/Paris"))
    '2013-07-12T20:04:00.120+02:00'
    """
    parts = None if zone is None else _IN_UTC.fullmatch(text)
    if parts is None:
        return text
    try:
        local = datetime.fromisoformat(f"{parts[1]}+00:00").astimezone(zone)
    except (OverflowError, ValueError):  # before the year 1, or after 9999
        return text
    date, clock = local.isoformat(sep=parts[1][10], timespec="seconds")[:19], local.isoformat()[19:]
    return f"{date}{parts[2] or ''}{clock}"


def both_html(own: str, utc: str) -> str:
    """Return a time in its own zone and in UTC, of which the style shows one."""
    if own == utc:
        return html_text(own)
    return f'<span class="own-zone">{html_text(own)}</span><span class="utc">{html_text(utc)}</span>'


def switch_html(name: str | None) -> str:
    """Return the switch between a zone and UTC, with a note, or "" where there is no other zone."""
    if name is None or zone_of(name) is None:
        return ""
    note = f"Times are in {html_text(name)}."
    return (
        f'<p class="hint zones"><label><input type="checkbox" id="in-utc"> Times in UTC</label> '
        f'<span class="own-zone">{note}</span><span class="utc">Times are in UTC.</span></p>'
    )
