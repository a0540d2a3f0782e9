"""The page of alerts: its numbers, its order, its bounds, and that no text of rules or events ends an element."""

import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from cer_gpu.report import alert_report, write_alerts
from cer_gpu.report.zones import in_zone, zone_of
from cer_gpu.rules import Rule, compile_rules

EVENTS = pa.table(
    {
        "type": ["A", "B", "A", "C", "B"] * 10,
        "user": ["ann", "ann", "<b>bob</b>", None, "x"] * 10,
        "ts": pa.array(range(50), pa.timestamp("s")),
    }
)
RULES = [
    Rule("one A", "SELECT * FROM S WHERE A PARTITION BY [user]", level="low", tactics=("Impact", "Execution")),
    Rule("a <script>", "SELECT * FROM S WHERE B", level="critical", id="7", tags=("<i>",), techniques=("T1",)),
    Rule("pairs", "SELECT * FROM S WHERE A : B", level="critical", tactics=("Execution",), file="pairs.toml"),
    Rule("never", "SELECT * FROM S WHERE D", level="high"),
    Rule("plain", "SELECT * FROM S WHERE C"),
]


def written(tmp_path, rules=RULES, events=EVENTS, time_column="ts", **options):
    path = tmp_path / "alerts.html"
    summary = write_alerts(
        compile_rules({rule.name: rule for rule in rules}, time_column=time_column), events, path, **options
    )
    return summary, path.read_text(encoding="utf-8")


def test_rules_stand_by_level_and_tactic(tmp_path):
    summary, page = written(tmp_path, title="Night")
    assert (summary.n_events, summary.n_matches) == (50, 20 + 20 + 10 + 10)
    assert summary.of == {"one A": 20, "a <script>": 20, "pairs": 10, "never": 0, "plain": 10}
    assert "<h1>Night</h1>" in page
    order = re.findall(r'<h2 class="level">(.*?)</h2>|<h3>(.*?)</h3>|<span class="rule">(.*?)</span>', page)
    assert [re.sub(r"<[^>]*>", "", "".join(each)) for each in order] == [
        "critical",
        "Execution",
        "pairs",
        "no tactic",
        "a &lt;script&gt;",
        "low",
        "Impact",
        "one A",
        "no level",
        "no tactic",
        "plain",
    ]


def test_a_rule_of_several_tactics_counts_for_each(tmp_path):
    _, page = written(tmp_path)
    table = page[page.index('<table class="tactics">') : page.index("</table>", page.index('<table class="tactics">'))]
    drawn = re.sub(r"<svg.*?</svg>|<tr class=\"axis\">.*?</tr>", "", table)
    rows = [re.sub(r"<[^>]*>", " ", row).split() for row in drawn.split("<tr>")[2:]]
    assert rows == [["Execution", "10", "20"], ["Impact", "20"], ["no", "tactic", "20", "10"]]


def test_the_bars_of_a_level_add_up(tmp_path):
    _, page = written(tmp_path)
    (row,) = re.findall(r'<tr class="critical"><td class="name">.*?</tr>', page)
    assert sum(int(n) for n in re.findall(r"<title>(\d+) from", row)) == 30
    labels = re.findall(r"<span>(1970[^<]*)</span>", page)
    assert (labels[0], labels[4], len(labels)) == ("1970-01-01T00:00:00", "1970-01-01T00:00:49", 10)


class Elements(HTMLParser):
    """The open elements of a page, each of which must be closed."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self._page = [], {}, ""

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta",):
            self.open.append(tag)
        if tag == "a":
            self._page = dict(attributes)["href"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        assert tag in ("path", "rect")

    def handle_data(self, data):
        if self.open and self.open[-1] == "a":
            self.links[self._page] = data


def test_tactics_and_techniques_lead_to_their_pages(tmp_path):
    tactics = ("Credential Access", "Own <tactic>", "Stealth", "TA0008")
    techniques = ("T1110", "T1059.001", "<i>T1</i>", "T12345")
    rule = Rule("a", "SELECT * FROM S WHERE A", tactics=tactics, techniques=techniques)
    _, page = written(tmp_path, [rule])
    elements = Elements()
    elements.feed(page)
    assert elements.open == []
    assert elements.links == {
        "https://attack.mitre.org/tactics/TA0006/": "Credential Access",
        "https://attack.mitre.org/tactics/TA0005/": "Stealth",
        "https://attack.mitre.org/tactics/TA0008/": "TA0008",
        "https://attack.mitre.org/techniques/T1110/": "T1110",
        "https://attack.mitre.org/techniques/T1059/001/": "T1059.001",
    }
    assert "&lt;i&gt;T1&lt;/i&gt;" in page
    assert "Own &lt;tactic&gt;" in page


def test_a_rule_says_when_its_first_and_last_alerts_were(tmp_path):
    _, page = written(tmp_path)
    (summary,) = re.findall(r'<span class="rule">pairs.*?</summary>', page)
    assert re.findall(r'<span class="when">(.*?)</span>', summary) == ["1970-01-01T00:00:01", "1970-01-01T00:00:46"]
    assert "<title>10 from 1970-01-01T00:00:01 to 1970-01-01T00:00:46</title>" in summary


def test_pictures_are_xml_of_their_size(tmp_path):
    _, page = written(tmp_path)
    pictures = re.findall(r"<svg.*?</svg>", page)
    assert len(pictures) == 3 + 3 + 4
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        width, height = map(float, root.get("viewBox").split()[2:])
        for bar in root.iter("rect"):
            assert 0 <= float(bar.get("x")) <= width - float(bar.get("width"))
            assert float(bar.get("y")) + float(bar.get("height")) == pytest.approx(height)
        for path in root.iter("path"):
            bars = re.findall(r"M(\d+) 24v-(\d+)h9v(\d+)z", path.get("d"))
            assert "".join(f"M{x} 24v-{up}h9v{down}z" for x, up, down in bars) == path.get("d")
            assert all(int(x) <= width - 9 and 0 < int(up) == int(down) <= height for x, up, down in bars)


def test_long_texts_of_rules_are_cut(tmp_path):
    listed = ", ".join(f"'{'x' * 20}{i}'" for i in range(5_000))
    _, page = written(tmp_path, [Rule("long", f"SELECT * FROM S WHERE A AS a FILTER a[user IN {{'ann', {listed}}}]")])
    assert len(page) < 40_000


@pytest.mark.parametrize(
    ("step", "labels"),
    [
        (timedelta(days=3), ["2024-02-29", "2024-05-26"]),
        (timedelta(minutes=7), ["2024-02-29T23:59", "2024-03-01T03:22"]),
        (timedelta(milliseconds=500), ["2024-02-29T23:59:58", "2024-03-01T00:00:12"]),
        (timedelta(microseconds=1), ["2024-02-29T23:59:58", "2024-02-29T23:59:58.000029"]),
    ],
)
def test_labels_are_as_short_as_they_are_told_apart(tmp_path, step, labels):
    times = [datetime(2024, 2, 29, 23, 59, 58) + i * step for i in range(30)]
    events = pa.table({"type": ["A"] * 30, "ts": pa.array(times, pa.timestamp("us"))})
    _, page = written(tmp_path, [Rule("a", "SELECT * FROM S WHERE A")], events)
    found = re.findall(r"<span>(2024[^<]*)</span>", page)
    assert [found[0], found[4]] == labels


def test_texts_of_rules_and_events_are_escaped(tmp_path):
    _, page = written(tmp_path)
    assert "<script" not in page
    assert "<b>" not in page
    assert "user &lt;b&gt;bob&lt;/b&gt;" in page
    assert "default-src 'none'; style-src 'sha256-" in page


def test_only_the_first_alerts_of_a_rule_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(alert_report, "FIRST_ALERTS", 3)
    _, page = written(tmp_path)
    assert page.count("<code>") == 4 * 3
    assert "The first 3 of 20." in page
    monkeypatch.setattr(alert_report, "MAX_ALERTS", 8)
    assert written(tmp_path)[1].count("<code>") == 4 * 2


@pytest.mark.parametrize(
    "times",
    [
        None,
        pa.array(range(50), pa.int64()),
        pa.array(range(50), pa.date32()),
        pa.array([7] * 50, pa.timestamp("ns", "Europe/Berlin")),
        pa.array(range(50), pa.duration("ms")),
    ],
    ids=lambda each: "positions" if each is None else str(each.type),
)
def test_all_kinds_of_times_have_an_axis(tmp_path, times):
    events = EVENTS.drop_columns("ts") if times is None else EVENTS.set_column(2, "ts", times)
    summary, page = written(tmp_path, events=events, time_column=None if times is None else "ts")
    assert summary.n_matches == 60
    assert page.count('<div class="labels">') == 2


def test_a_page_without_alerts_says_so(tmp_path):
    summary, page = written(tmp_path, RULES[3:4])
    assert summary.n_matches == 0
    assert "No alerts." in page
    assert any("no event has the type 'D'" in note for note in summary.notes)


def test_the_command_writes_the_alerts_of_a_folder(tmp_path, capsys, monkeypatch):
    import pyarrow.parquet as pq

    from cer_gpu.cli import main

    monkeypatch.chdir(tmp_path)
    pq.write_table(EVENTS, "events.parquet")
    (tmp_path / "rules").mkdir()
    text = "[rule]\nname = 'r'\nlanguage = 'ceql'\nseverity = 'high'\nquery = 'SELECT * FROM S WHERE A'\n"
    (tmp_path / "rules" / "r.toml").write_text(text)
    asked = ["report", "--queries", "rules", "events.parquet", "--time-column", "ts", "-o", "out.html"]
    assert main(asked) == 0
    assert capsys.readouterr().err.startswith("50 rows, 20 alerts of 1 query, 0.0 MB -> out.html")
    assert '<h2 class="level">high</h2>' in (tmp_path / "out.html").read_text()
    for output, word in ("positions", "20 matches"), ("funnel", "20 starts"):
        assert main([*asked, "--output", output]) == 0
        assert word in capsys.readouterr().err


def test_hosts_are_listed_with_most_alerts_first(tmp_path):
    rules = compile_rules(
        {level: Rule(level, f"SELECT * FROM S WHERE {level[0].upper()}", level=level) for level in ("high", "low")}
    )
    events = pa.table({"type": list("HLLLH"), "Computer": ["a", "b<", "b<", None, "b<"]})
    write_alerts(rules, events, tmp_path / "alerts.html")
    page = (tmp_path / "alerts.html").read_text(encoding="utf-8")
    table = page[page.index('<table class="tactics hosts">') :]
    rows = re.findall(r"<tr><td>(.*?)</td>(.*?)</tr>", table[: table.index("</table>")])
    assert [host for host, _ in rows] == ["b&lt;", "a"]
    assert [re.findall(r'class="name">(\d+)<|<td></td>', cells) for _, cells in rows] == [["1", "2"], ["1", ""]]


def test_times_are_in_their_own_zone_and_in_utc_on_request(tmp_path):
    times = pa.array([1373652240000, 1373652300120, 1373655900000], pa.timestamp("ms", "Europe/Paris"))
    events = pa.table({"type": ["A", "B", "A"], "ts": times})
    rules = [Rule("pairs", "SELECT * FROM S WHERE A ; B", level="low"), Rule("A", "SELECT * FROM S WHERE A")]
    _, page = written(tmp_path, rules, events)
    assert '<input type="checkbox" id="in-utc">' in page
    assert "Times are in Europe/Paris." in page
    both = re.findall(r'<td><span class="own-zone">(.*?)</span><span class="utc">(.*?)</span></td>', page)
    assert ("2013-07-12T20:05:00.120+02:00", "2013-07-12T18:05:00.120Z") in both
    assert all(datetime.fromisoformat(own) == datetime.fromisoformat(utc) for own, utc in both)
    ElementTree.fromstring(re.search(r"<table class=\"times\">.*?</table>", page, re.DOTALL)[0])
    for zone in (None, "UTC", "+00:00"):
        _, page = written(tmp_path, rules, events.set_column(1, "ts", events["ts"].cast(pa.timestamp("ms", zone))))
        assert "own-zone" not in page[page.index("<body>") :]


def test_zones_have_names_or_offsets():
    assert in_zone("2013-01-12 18:04:00Z", zone_of("Europe/Paris")) == "2013-01-12 19:04:00+01:00"
    assert in_zone("2013-01-12T18:04:00.5Z", zone_of("-03:30")) == "2013-01-12T14:34:00.5-03:30"
    assert in_zone("0001-01-01T00:00:00Z", zone_of("-03:30")) == "0001-01-01T00:00:00Z"
    assert in_zone("10", zone_of("Europe/Paris")) == "10"
    assert zone_of("No/Such") is zone_of("Etc/UTC") is zone_of(None) is None
