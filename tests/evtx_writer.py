"""Writer of small event logs of Windows (EVTX): binary XML without templates, of elements, attributes and texts."""

import struct
import xml.etree.ElementTree as ET
import zlib
from datetime import UTC, datetime

_CHUNK = 1 << 16
_FILE_HEADER = 1 << 12
_CHUNK_HEADER = 512
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)


def event_xml(system="", data="", at="2024-03-01T05:00:00.123456Z"):
    """Return the XML of an event: elements of its System, and its EventData or UserData."""
    return f"<Event><System><TimeCreated SystemTime='{at}'/>{system}</System>{data}</Event>"


def evtx_bytes(events, *, n_in_chunk=20):
    """Return a file of events, each the text of its XML, some in each chunk."""
    groups = [events[i : i + n_in_chunk] for i in range(0, len(events), n_in_chunk)]
    chunks, first = [], 1
    for group in groups:
        chunks.append(_chunk(group, first))
        first += len(group)
    header = bytearray(_FILE_HEADER)
    struct.pack_into(
        "<8sQQQIHHHH", header, 0, b"ElfFile\0", 0, max(len(chunks) - 1, 0), first, 128, 1, 3, 4096, len(chunks)
    )
    struct.pack_into("<I", header, 124, zlib.crc32(bytes(header[:120])))
    return bytes(header) + b"".join(chunks)


def _chunk(events, first):
    body, last_at = bytearray(), _CHUNK_HEADER
    for number, text in enumerate(events, first):
        last_at = _CHUNK_HEADER + len(body)
        body += _record(text, number, _CHUNK_HEADER + len(body))
    if len(body) > _CHUNK - _CHUNK_HEADER:
        raise ValueError("too many events for a chunk")
    last = first + len(events) - 1
    header = bytearray(_CHUNK_HEADER)
    end = _CHUNK_HEADER + len(body)
    struct.pack_into(
        "<8sQQQQIIII", header, 0, b"ElfChnk\0", first, last, first, last, 128, last_at, end, zlib.crc32(bytes(body))
    )
    struct.pack_into("<I", header, 124, zlib.crc32(bytes(header[:120] + header[128:512])))
    return bytes(header) + bytes(body).ljust(_CHUNK - _CHUNK_HEADER, b"\0")


def _record(text, number, at):
    """Return a record, which begins at an offset of its chunk."""
    ticks = int((datetime(2024, 3, 1, 5, tzinfo=UTC) - _EPOCH).total_seconds() * 10**7)
    xml = b"\x0f\x01\x01\x00" + _template(text, at + 24 + 4, number) + b"\x00"
    size = 24 + len(xml) + 4
    return struct.pack("<IIQQ", 0x2A2A, size, number, ticks) + xml + struct.pack("<I", size)


def _template(text, at, number):
    """Return an instance of a template that is defined in it, without values."""
    begin = at + 2 + 4 + 4
    guid = struct.pack("<IIII", number, 0, 0, 0)
    xml = b"\x0f\x01\x01\x00" + _element(ET.fromstring(text), begin + 4 + 16 + 4 + 4) + b"\x00"
    defined = struct.pack("<I", 0) + guid + struct.pack("<I", len(xml)) + xml
    return struct.pack("<BBII", 0x0C, 0x01, number, begin) + defined + struct.pack("<I", 0)


def _element(element, at):
    name = _name(element.tag, at + 1 + 2 + 4)
    attributes = b""
    begin = at + 1 + 2 + 4 + len(name) + 4
    items = list(element.attrib.items())
    for i, (key, value) in enumerate(items):
        more = 0x40 if i + 1 < len(items) else 0
        attributes += bytes([0x06 | more]) + _name(key, begin + len(attributes) + 1) + _text(value)
    listed = struct.pack("<I", len(attributes)) + attributes if items else b""
    start = at + 1 + 2 + 4 + len(name) + len(listed)
    content = _text(element.text) if element.text else b""
    for child in element:
        content += _element(child, start + 1 + len(content))
    inside = name + listed + (b"\x02" + content + b"\x04" if content else b"\x03")
    return bytes([0x41 if items else 0x01]) + struct.pack("<HI", 0xFFFF, len(inside)) + inside


def _name(text, at):
    """Return a name that lies at an offset of its chunk, where it is first used."""
    value = 0
    for char in text:
        value = (value * 65599 + ord(char)) & 0xFFFFFFFF
    head = struct.pack("<IIHH", at + 4, 0, value & 0xFFFF, len(text))
    return head + text.encode("utf-16-le") + b"\0\0"


def _text(text):
    data = text.encode("utf-16-le")
    return struct.pack("<BBH", 0x05, 0x01, len(data) // 2) + data
