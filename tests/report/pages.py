"""Reading of the content of report pages, and events to make pages of."""

import base64
import json
import re

import numpy as np
import pyarrow as pa

HOSTILE = "</script><script>alert(1)</script><!-- & \"quoted\" 'text'"

TRADES = pa.table(
    {
        "type": ["SELL", "BUY", "SELL", "BUY", "BUY", "SELL"],
        "name": ["MSFT", "MSFT", "INTC", "INTC", "MSFT", "AMZN"],
        "price": [101.0, 99.5, 80.0, 80.5, None, 1900.0],
        "note": [HOSTILE, "", None, "x" * 500, "é", "日本"],
        "ts": pa.array([0, 20_000, 60_000, 60_000, 150_000, 300_000], pa.timestamp("ms")),
    }
)


def held(path):
    """Return the content of a page of one query."""
    (content,) = all_held(path)
    return content


def all_held(path):
    """Return the contents of a page, one for each query."""
    return _content(path)["pages"]


def about(path):
    """Return the paths that a page names."""
    return _content(path)["about"]


def _content(path):
    text = path.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="held">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def unpacked(packed):
    """Return the numbers that `packed` encoded, as the page decodes them."""
    raw = np.frombuffer(base64.b64decode(packed["data"]), f"<{packed['type']}")
    return (raw if packed["unit"] == 1 else raw.astype(np.float64) * packed["unit"]).tolist()


def rows_of(page, number):
    """Return the rows of a complex event on a page: position, role, and values."""
    rows = page["rows"]
    ends = [0, *(int(end) for end in unpacked(rows["ends"]))]
    at = number // rows["step"]
    positions = unpacked(rows["positions"])
    columns = [(column["values"], unpacked(column["codes"])) for column in rows["columns"]]
    made = []
    for k in range(ends[at], ends[at + 1]):
        row = int(unpacked(rows["references"])[k])
        role = rows["role_names"][int(unpacked(rows["roles"])[k])]
        made.append((positions[row], role, *(values[int(codes[row])] for values, codes in columns)))
    return made


def between_of(page, number):
    """Return the positions of the rows between of a complex event on a page, and True if there are more."""
    rows = page["rows"]
    at = number // rows["step"]
    ends = [0, *(int(end) for end in unpacked(rows["between_ends"]))]
    positions = unpacked(rows["positions"])
    references = unpacked(rows["between"])[ends[at] : ends[at + 1]]
    return [positions[int(row)] for row in references], unpacked(rows["between_cut"])[at] == 1
