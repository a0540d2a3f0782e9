"""Whatever is in a file of rules, it is that file's error, with its name, and the other rules run."""

import random

import pyarrow as pa
import pytest
import yaml
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.rules import load

TOML = """
[rule]
name = "one"
rule_id = "8d9b1bbb-8e3c-4f0e-9a6c-1b1f3a3b1c1d"
language = "eql"
severity = "high"
tags = ["a", "b"]
query = '''
sequence by host with maxspan=5m
  [process where name == "cmd.exe" and args : ("-x", "*y*")] [process where x > 5]
'''
[[rule.threat]]
[rule.threat.tactic]
name = "Execution"
[[rule.threat.technique]]
id = "T1059"
"""
EQL = 'sequence by host [process where name : "cmd*" and not x in (1, 2)] [any where length(name) > 3]'
CEQL = "SELECT a.x, COUNT(*) AS n FROM S WHERE A AS a ; B+ ; !C FILTER a[x > 5 AND name LIKE '%y'] WITHIN 20 EVENTS"
SQL = """SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY host ORDER BY ts MEASURES A.x AS first
ONE ROW PER MATCH PATTERN (A B+) DEFINE A AS x > 5, B AS x < PREV(x))"""
SIGMA = {
    "title": "one",
    "id": "929a690e-bef0-4204-a928-ef5e620d6fcc",
    "status": "test",
    "level": "high",
    "tags": ["attack.execution", "attack.t1059"],
    "logsource": {"product": "windows", "category": "process_creation"},
    "detection": {
        "selection": {"name|endswith": ["\\cmd.exe", "\\x*.exe"], "x|gte": 5, "ip|cidr": "10.0.0.0/8"},
        "filter": [{"host|contains|all": ["a", "b"]}, {"name|re": "^a.*b$"}],
        "condition": "selection and not 1 of filter*",
    },
}
CORRELATION = {
    "title": "many",
    "correlation": {
        "type": "event_count",
        "rules": ["base"],
        "group-by": ["host"],
        "timespan": "5m",
        "condition": {"gte": 10, "lte": 20},
    },
}
BASE = {**SIGMA, "title": "base", "name": "base", "id": "929a690e-bef0-4204-a928-ef5e620d6fcd"}
FILTER = {
    "title": "filter",
    "logsource": {"product": "windows"},
    "filter": {"rules": ["base"], "selection": {"x": 5}, "condition": "selection"},
}
TEXTS = {".toml": TOML, ".eql": EQL, ".ceql": CEQL, ".sql": SQL}
GOOD = {
    "good1.ceql": "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS",
    "good2.eql": "sequence [A where true] [B where true]",
    "good3.toml": "[rule]\nname = 'good3'\nquery = 'any where x > 0'\nlanguage = 'eql'\n",
    "good4.yml": "title: good4\nlogsource: {product: linux}\ndetection: {s: {x: 1}, condition: s}\n",
}
ODD = [
    "9" * 5_000, "0x" + "f" * 5_000, "-1e999", "\x00", "\ud7ff\U0001f600", "'", '"', "(" * 300, "[" * 300, "{" * 50,
    "!!python/object:os.x", "&a [*a]", "*a", "2026-01-01", "~", "null", "true", "5", ".nan", "- - -", "---\n", "...\n",
    "%TAG", "not " * 200, "\t", "\x1b[31m",
    "`", "/*", "--", "==", " AND ", "* ", "|", "\\", "9" * 40 + "y", "1 of *", "count() by x > 5", "<<", "WITHIN",
    "\ufeff",
]  # fmt: skip
ODD_VALUES = [
    None, True, 0, -1, 10**4_000, 2**70, 1.5, float("nan"), float("inf"), "", "\x00", "a" * 70_000, "*", "(" * 200, [],
    {}, [[]], [None], {"a": {}}, {"": ""}, [1, "a", None], {"x": [{"y": []}]}, "2026-01-01", "1 of them", b"bytes",
    "selection or", "not", "|", "\U0001f600",
]  # fmt: skip
EVENTS = pa.table(
    {
        "type": ["A", "B", "A"],
        "x": [1, 7, 2],
        "name": ["cmd.exe", "b", None],
        "host": ["h", "h", "i"],
        "ts": pa.array([1, 2, 3], pa.timestamp("us")),
    }
)


def mutated_text(text, rng):
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.randint(1, 20))
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + rng.choice(ODD) + text[rng.choice([at, end]) :]
        elif kind == 2:
            text = text[:at] + text[at:end] * rng.choice([2, 3, 200]) + text[end:]
        elif kind == 3:
            text = text[:at]
        else:
            text = text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0xD000)])) + text[at:]
    return text


def nodes(value):
    """Return the containers of a document, with the keys or indices in them."""
    found, todo = [], [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict | list):
            places = list(each) if isinstance(each, dict) else range(len(each))
            found += [(each, place) for place in places]
            todo += [each[place] for place in places]
    return found


def mutated_yaml(rng):
    documents = [yaml.safe_load(yaml.safe_dump(each)) for each in rng.sample([SIGMA, CORRELATION, BASE, FILTER], 2)]
    for _ in range(rng.randint(1, 3)):
        if not (places := nodes(documents)):
            break
        holder, place = rng.choice(places)
        value = holder.pop(place) if isinstance(holder, dict) else holder[place]
        kind = rng.randrange(4)
        if isinstance(holder, dict):
            odd = rng.choice([1, None, True, "", "a" * 3_000, "x|odd", 1.5, "\x00", "x|re|re", "action", "|"])
            if kind != 2:
                holder[odd if kind == 0 else place] = value if kind == 0 else rng.choice(ODD_VALUES)
        else:
            holder[place] = rng.choice(ODD_VALUES)
    yaml.Dumper.ignore_aliases = lambda *_: True
    return "".join("---\n" + yaml.dump(each, default_flow_style=rng.random() < 0.2) for each in documents)


def mutated(rng):
    """Return the ending and the bytes of a file."""
    ending = rng.choice([*TEXTS, ".yml", ".yml", ".yml"])
    text = TEXTS[ending] if ending in TEXTS else mutated_yaml(rng)
    if ending in TEXTS or rng.random() < 0.4:
        text = mutated_text(text, rng)
    encoding = rng.choice(["utf-8"] * 8 + ["utf-16", "latin-1"])
    data = text.encode(encoding, "replace")
    if rng.random() < 0.1:
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.randbytes(rng.randint(1, 9)) + data[at:]
    return ending, data


def assert_others_run(seed, tmp_path):
    rng, folder = random.Random(seed), tmp_path / str(seed)
    folder.mkdir()
    for name, text in GOOD.items():
        (folder / name).write_text(text)
    for i in range(25):
        ending, data = mutated(rng)
        (folder / f"m{i}{ending}").write_bytes(data)
    rules = load(folder, type_column="type", time_column="ts", errors="skip", missing_fields="null")
    files = {rule.file for rule in rules.rules.values()}
    assert {str(folder / name) for name in GOOD} <= files, seed
    found = rules.evaluate(EVENTS, errors="skip")
    good = {name for name, rule in rules.rules.items() if rule.file in {str(folder / each) for each in GOOD}}
    assert good <= found.keys(), seed
    for error in rules.skipped.values():
        assert isinstance(error, cer_gpu.CerError), seed


@pytest.mark.long("compiles thousands of rules")
def test_mutated_rules_are_errors_of_their_files_and_the_others_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for seed in seeds(scaled(80)):
        assert_others_run(seed, tmp_path)


def test_a_correlation_with_a_number_for_a_name_silences_no_other_rule(tmp_path):
    (tmp_path / "good.yml").write_text(GOOD["good4.yml"])
    (tmp_path / "wrong.yml").write_text(yaml.safe_dump(CORRELATION).replace("base", "-1"))
    rules = load(tmp_path, errors="skip", missing_fields="null")
    assert list(rules) == ["good4"]
    assert "expected names or ids of rules, found -1" in str(*rules.skipped.values())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yml", f"title: t\nlogsource: {{}}\ndetection: {{s: {{x: {'9' * 5_000}}}, condition: s}}", "1,000 digits"),
        ("a.yml", f"title: 0x{'9' * 5_000}\nlogsource: {{}}\ndetection: {{s: {{x: 1}}, condition: s}}", "1,000 digits"),
        ("a.yml", "title: t\nlogsource: {a: b}\ndetection: {s: {5: x}, condition: s}", "a text as a key, found 5"),
        ("a.toml", f"[rule]\nquery = 'any where true'\nx = {'9' * 5_000}", "cannot be read as a rule"),
        ("a.toml", f"[rule]\nquery = 'any where true'\nseverity = 0x{'9' * 5_000}", "cannot be read as a rule"),
    ],
)  # fmt: skip
def test_what_reading_a_rule_raises_is_the_error_of_its_file(tmp_path, name, text, said):
    (tmp_path / "good.ceql").write_text(GOOD["good1.ceql"])
    (tmp_path / name).write_text(text)
    rules = load(tmp_path, errors="skip")
    assert list(rules) == ["good"]
    (error,) = rules.skipped.values()
    assert str(error).startswith(f"{tmp_path / name}: ")
    assert said in str(error)
    with pytest.raises(cer_gpu.CerError, match=said):
        load(tmp_path)


def test_what_compiling_a_rule_raises_is_its_error(tmp_path, monkeypatch):
    def failing(text, **options):
        if "bad" in text:
            raise AttributeError("no such thing")
        return whole(text, **options)

    import cer_gpu.compilation as module

    whole = module.analyse
    monkeypatch.setattr(module, "analyse", failing)
    (tmp_path / "good.ceql").write_text(GOOD["good1.ceql"])
    (tmp_path / "wrong.ceql").write_text("SELECT bad FROM S WHERE A")
    rules = load(tmp_path, errors="skip")
    assert list(rules) == ["good"]
    assert {str(error) for error in rules.skipped.values()} == {"cannot be compiled: no such thing"}
