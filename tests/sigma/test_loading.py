"""Rules from files, folders, texts and objects of pySigma, and the summary of what became of them."""

import copy
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest
from sigma.collection import SigmaCollection
from sigma.processing.pipeline import ProcessingItem, ProcessingPipeline
from sigma.processing.transformations import FieldMappingTransformation
from sigma.rule import SigmaRule
from test_house import ROOT

import cer_gpu
from cer_gpu.rules import Rule
from cer_gpu.sigma import SigmaRules, load

WHOAMI = r"""
title: Whoami
id: 0b0f1f1e-5b4d-4c44-a4e8-66a1c0f2a111
status: test
level: high
tags: [attack.discovery, attack.credential-access, attack.t1033, attack.T1059.001, attack.g0032, cve.2024-1]
logsource: {product: windows, category: process_creation}
detection:
  selection: {Image|endswith: '\whoami.exe'}
  condition: selection
"""
LOGON = """
title: Logon
logsource: {product: windows, service: security}
detection: {s: {EventID: 4624, LogonType: 3}, condition: s}
"""
WITH_PLACEHOLDER = """
title: Admins
logsource: {product: windows, service: security}
detection: {s: {User|expand: '%admins%'}, condition: s}
"""
EVENT = "SELECT * FROM events WHERE * AS event FILTER event"


def test_a_rule_says_of_itself_what_its_file_says(tmp_path):
    path = tmp_path / "whoami.yml"
    path.write_text(WHOAMI)
    rules = load(path)
    assert rules.rules["Whoami"] == Rule(
        "Whoami",
        rf"-- Sigma: Whoami{chr(10)}{EVENT}[Image GLOB '*\whoami.exe' NOCASE]",
        language="sigma",
        level="high",
        tags=(
            "attack.discovery",
            "attack.credential-access",
            "attack.t1033",
            "attack.T1059.001",
            "attack.g0032",
            "cve.2024-1",
        ),
        id="0b0f1f1e-5b4d-4c44-a4e8-66a1c0f2a111",
        tactics=("Discovery", "Credential Access"),
        techniques=("T1033", "T1059.001"),
        file=str(path),
    )
    assert rules.fields == {"Whoami": ("Image",)}


def test_everything_that_holds_rules_is_taken(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.yaml").write_text(WHOAMI)
    (tmp_path / "b.yml").write_text(LOGON)
    (tmp_path / "workflow.yml").write_text("on: push\njobs: {}\n---\n- 1\n")
    (tmp_path / "c.txt").write_text("no rule")
    expected = {"Whoami": load(WHOAMI)["Whoami"], "Logon": load(LOGON)["Logon"]}
    for given in (
        tmp_path,
        str(tmp_path),
        [tmp_path / "inner", str(tmp_path / "b.yml")],
        f"{WHOAMI}\n---\n{LOGON}",
        SigmaCollection.from_yaml(f"{WHOAMI}\n---\n{LOGON}"),
        [SigmaRule.from_yaml(WHOAMI), LOGON],
    ):
        assert dict(load(given)) == expected
    assert load(tmp_path).skipped_files == {"YAML without a detection": 2}
    assert "skipped: 2 YAML without a detection" in load(tmp_path).summary()


def test_rules_of_pysigma_stay_as_they_were():
    rule = SigmaRule.from_yaml(WHOAMI)
    before = copy.deepcopy(rule)
    first = dict(load(rule, "ecs"))
    assert (rule, rule.custom_attributes) == (before, before.custom_attributes)
    assert dict(load(rule, "ecs")) == first


def test_equal_titles_are_told_apart(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.yml").write_text(WHOAMI)
    assert list(load(tmp_path)) == ["Whoami", "Whoami (b)", "Whoami (c)"]
    assert list(load([WHOAMI, WHOAMI, WHOAMI])) == ["Whoami", "Whoami (2)", "Whoami (3)"]


def test_one_wrong_rule_leaves_the_others(tmp_path):
    (tmp_path / "a.yml").write_text("title: 1\ndetection: [")
    (tmp_path / "b.yml").write_text(WHOAMI)
    (tmp_path / "c.yml").write_text(
        "title: Twice\nlogsource: {product: x}\ndetection: {s: {a: 1, a: 2}, condition: s}\n"
    )
    (tmp_path / "d.yml").write_text("title: No source\ndetection: {s: {a: 1}, condition: s}\n")
    (tmp_path / "e.yml").write_text("title: No such\nlogsource: {product: x}\ndetection: {s: {a: 1}, condition: t}\n")
    rules = load([tmp_path, WITH_PLACEHOLDER])
    assert list(rules) == ["Whoami"]
    told = [(name, error.message[:200]) for name, error in rules.errors]
    assert [tuple(text.replace(f"{tmp_path}/", "")[:46] for text in each) for each in told] == [
        ("a.yml", "a.yml: document 1, line 2: while parsing a flo"),
        ("c.yml", "c.yml: document 1, line 3: the key 'a' stands "),
        ("No source", "d.yml: Sigma rule must have a log source"),
        ("No such", "e.yml: Detection 't' not defined in detections"),
        ("Admins", "the placeholder %admins% has no values: give t"),
    ]
    assert rules.summary().split("\n") == [
        "1 rule loaded",
        "5 rules without a text:",
        "  2: not YAML",
        "  2: wrong",
        "  1: placeholders without values",
    ]


def test_the_summary_tells_the_columns_that_events_have_not():
    rules = load([WHOAMI, LOGON], "windows")
    schema = pa.schema([("EventID", pa.int32()), ("Channel", pa.string()), ("Image", pa.string())])
    assert rules.missing(schema) == {"LogonType": 1}, "logs of Sysmon have Image in place of NewProcessName"
    assert rules.summary(schema).split("\n") == [
        "2 rules loaded",
        "columns that the events have not, read by 1 rule (a test of one does not hold):",
        "  1: LogonType",
    ]
    process = pa.struct([("executable", pa.string())])
    names = ["host.os.type", "event.category", "event.type"]
    ecs = pa.schema([("process", process), *((name, pa.string()) for name in names)])
    assert load(WHOAMI, "ecs").summary(ecs).split("\n")[1] == "the events have all columns that the rules read"


def test_columns_have_the_last_word():
    renamed = load(WHOAMI, "windows", columns={"Image": "exe", "EventID": "event id"})["Whoami"]
    assert renamed.split("\n")[1] == (
        f"{EVENT}[(`event id` = 1 AND Channel GLOB 'Microsoft-Windows-Sysmon/Operational' NOCASE OR "
        rf"`event id` = 4688 AND Channel GLOB 'Security' NOCASE) AND (exe GLOB '*\whoami.exe' NOCASE)]"
    )
    by_pipeline = load(WHOAMI, "ecs", columns={"process.executable": "exe"})
    assert "exe GLOB" in by_pipeline["Whoami"]
    mapping = ProcessingItem(FieldMappingTransformation({"Image": "process", "exe": "never"}))
    pipeline = ProcessingPipeline([mapping])
    assert "process GLOB" in load(WHOAMI, pipeline)["Whoami"]
    assert "exe GLOB" in load(WHOAMI, [pipeline, "ecs"], columns={"Image": "exe"})["Whoami"]


def test_pipelines_of_pysigma_give_values_of_placeholders(tmp_path):
    path = tmp_path / "admins.yml"
    path.write_text(
        "name: admins\nvars: {admins: [ann, 'bob*']}\n"
        "transformations: [{type: value_placeholders}, {type: field_name_mapping, mapping: {User: account}}]\n"
    )
    for given in (path, str(path), [ProcessingPipeline.from_yaml(path.read_text())]):
        assert (
            load(WITH_PLACEHOLDER, given)["Admins"].split("\n")[1] == f"{EVENT}[account GLOB {{'ann', 'bob*'}} NOCASE]"
        )


def test_a_pipeline_may_write_ceql(tmp_path):
    path = tmp_path / "lists.yml"
    path.write_text(
        "transformations: [{type: query_expression_placeholders, expression: '{field} IN {{1, 2}} AND 3 = {id}'}]"
    )
    rule = "title: t\nlogsource: {product: x}\ndetection: {s: {User|expand: '%admins%'}, condition: not s}\n"
    assert load(rule, path)["t"].endswith("event[NOT (User IN {1, 2} AND 3 = admins)]")


def test_filters_are_applied():
    filtered = (
        "title: No servers\nlogsource: {product: windows, category: process_creation}\n"
        "filter: {rules: [0b0f1f1e-5b4d-4c44-a4e8-66a1c0f2a111], f: {Computer|startswith: srv}, condition: not f}\n"
    )
    text = load([WHOAMI, filtered])["Whoami"]
    assert r"Image GLOB '*\whoami.exe' NOCASE AND (Computer NOT GLOB 'srv*' NOCASE OR Computer IS NULL)" in text


def test_what_cannot_be_read_is_an_error(tmp_path):
    for given, reason in (
        (tmp_path / "nosuch", "expected a file or folder of Sigma's rules, found nothing"),
        ("nosuch.yml", "expected a file or folder"),
        (17, "rules must be a path, YAML, rules of pySigma, or a list of these, got int"),
    ):
        with pytest.raises(cer_gpu.OptionError, match=reason):
            load(given)
    for pipelines, reason in (
        ("window", "there is no pipeline 'window'.*\n.*did you mean 'windows'"),
        ([3], "expected a pipeline of pySigma, or its name or path, got int"),
    ):
        with pytest.raises(cer_gpu.OptionError, match=reason):
            load(WHOAMI, pipelines)
    (tmp_path / "p.yml").write_text("transformations: [{type: nosuch}]")
    with pytest.raises(cer_gpu.OptionError, match=r"p\.yml: is no pipeline of pySigma: .*nosuch"):
        load(WHOAMI, tmp_path / "p.yml")


WITHOUT = """
import sys
needed = ["sigma", "sigma.rule", "yaml"]
sys.modules.update(dict.fromkeys(needed))
import cer_gpu, cer_gpu.sigma
assert len(cer_gpu.compile_all({"a": "-- Sigma: a\\nSELECT * FROM S WHERE *"})) == 1
for name in needed:
    del sys.modules[name]
assert not {"sigma", "yaml"} & sys.modules.keys()
for missing in needed:
    sys.modules[missing] = None
    try:
        cer_gpu.sigma.load("title: a\\n")
    except cer_gpu.OptionError as error:
        print(missing, error)
    del sys.modules[missing]
"""


def test_without_pysigma_the_error_says_what_to_install():
    said = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    error = "Sigma's rules need pySigma\nhint: pip install 'cer-gpu[sigma]'\n"
    assert said == "".join(f"{missing} {error}" for missing in ("sigma", "sigma.rule", "yaml"))


def test_rules_can_be_pickled():
    rules = load([WHOAMI, WITH_PLACEHOLDER])
    again = pickle.loads(pickle.dumps(rules))
    assert isinstance(again, SigmaRules)
    assert (dict(again), again.rules, again.fields, again.summary()) == (
        dict(rules),
        rules.rules,
        rules.fields,
        rules.summary(),
    )
    assert repr(again) == "<SigmaRules: 1 rule, 1 without a text>"


def test_a_field_in_another_letter_case_is_named_with_the_nearest():
    rules = load("title: T\nlogsource: {product: x}\ndetection: {s: {commandline: a, other: b}, condition: s}")
    schema = pa.schema({"CommandLine": pa.string(), "OtherOne": pa.string()})
    assert rules.summary(schema).split("\n")[2:] == ["  1: commandline (did you mean CommandLine?)", "  1: other"]
