"""SigmaHQ's regression cases: each rule fires on the events that were recorded for it; skipped without the cases."""

import json
import re
import zipfile

import pyarrow as pa
import pytest
from outside_data import FOLDER

import cer_gpu
import cer_gpu.sigma

yaml = pytest.importorskip("yaml")
pytest.importorskip("sigma")

CASES = FOLDER / "sigma_regression.zip"
RULES = FOLDER.parent / "rules" / "sigma_rules.zip"
pytestmark = pytest.mark.skipif(not (CASES.exists() and RULES.exists()), reason="the cases or the rules are not there")


def events_in(text):
    """Yield the events of a file of JSON, one object after the other."""
    decoder, at = json.JSONDecoder(), 0
    while (at := at + len(text[at:]) - len(text[at:].lstrip())) < len(text):
        event, at = decoder.raw_decode(text, at)
        yield from event if isinstance(event, list) else [event]


def flat(value, name=""):
    """Yield the fields of an event by their own names, attributes of System by the name of both."""
    for key, inner in value.items():
        if key == "#text":
            yield name, inner
        elif key == "#attributes":
            yield from ((f"{name}_{attribute}", each) for attribute, each in inner.items())
        elif isinstance(inner, dict):
            yield from flat(inner, key)
        else:
            yield key, inner


def as_written(value):
    return value if value is None or isinstance(value, str) else json.dumps(value)


def cases():
    """Yield the id of the rule and the events of each case."""
    with zipfile.ZipFile(CASES) as archive:
        names = archive.namelist()
        for info in (name for name in names if name.endswith("info.yml")):
            case = yaml.safe_load(archive.read(info))
            beside = [
                name for name in names if name.startswith(info.removesuffix("info.yml")) and name.endswith("json")
            ]
            for name in beside if case.get("regression_tests_info") else ():
                events = [dict(flat(event)) for event in events_in(archive.read(name).decode())]
                yield from ((rule["id"], events) for rule in case["rule_metadata"])


def named_rules(ids):
    """Return the texts of rules by their ids."""
    found = {}
    with zipfile.ZipFile(RULES) as archive:
        for name in archive.namelist():
            if name.endswith(".yml"):
                text = archive.read(name).decode()
                match = re.search(r"(?m)^id: *(\S+)", text)
                if match and match[1] in ids:
                    found[match[1]] = text
    return found


def test_every_rule_fires_on_the_events_that_were_recorded_for_it():
    known = list(cases())
    texts = named_rules({rule for rule, _ in known})
    loaded = cer_gpu.sigma.load(list(texts.values()), pipelines="windows")
    assert loaded.errors == []
    names = {rule.id: name for name, rule in loaded.rules.items()}
    silent = []
    for rule, events in known:
        columns = dict.fromkeys(name for event in events for name in event)
        table = pa.table({name: [as_written(event.get(name)) for event in events] for name in columns})
        query = cer_gpu.compile(loaded[names[rule]], type_column=None)
        silent += [names[rule]] if not query.evaluate(table, output="ends").num_rows else []
    assert len(known) > 90
    assert silent == []


@pytest.mark.long("reads thousands of rules")
def test_every_rule_fires_on_the_event_log_that_was_recorded_for_it(tmp_path):
    pytest.importorskip("evtx")
    logs = {}
    with zipfile.ZipFile(CASES) as archive:
        names = archive.namelist()
        for info in (name for name in names if name.endswith("info.yml")):
            case = yaml.safe_load(archive.read(info))
            folder = info.removesuffix("info.yml")
            for name in (name for name in names if name.startswith(folder) and name.endswith(".evtx")):
                path = tmp_path / f"{len(logs)}.evtx"
                path.write_bytes(archive.read(name))
                logs[path] = [rule["id"] for rule in case["rule_metadata"]]
    texts = named_rules({rule for rules in logs.values() for rule in rules})
    loaded = cer_gpu.sigma.load(list(texts.values()), pipelines="windows")
    queries = {
        rule.id: cer_gpu.compile(loaded[name], type_column=None, missing_fields="null")
        for name, rule in loaded.rules.items()
    }
    told = [(path, rule) for path, rules in logs.items() for rule in rules]
    silent = [rule for path, rule in told if not queries[rule].evaluate(path, output="ends").num_rows]
    assert len(told) > 90
    assert silent == []
