"""Pipelines by name: the log sources of rules, and the columns of their fields."""

import zipfile

import pytest
import sigma.backends
import sigma.pipelines
from outside_data import FOLDER
from sigma.collection import SigmaCollection
from sigma.plugins import InstalledSigmaPlugins
from sigma.rule import SigmaRule
from test_house import ROOT

from cer_gpu.sigma import load
from cer_gpu.sigma.backend import CerGpuBackend
from cer_gpu.sigma.pipelines.named import FINDERS

PLUGIN = ROOT / "cer_gpu" / "sigma" / "plugin"
SYSMON = "Channel GLOB 'Microsoft-Windows-Sysmon/Operational' NOCASE"
NO_CHANNEL = "`winlog.channel` IS NULL"
OF_SYSMON = "`winlog.channel` GLOB 'Microsoft-Windows-Sysmon/Operational' NOCASE"
STARTS = "`event.category` GLOB 'process' NOCASE AND `event.type` GLOB 'start' NOCASE"
SECURITY = "Channel GLOB 'Security' NOCASE"


def predicate(logsource, tests, pipelines, **options):
    rule = f"title: t\nlogsource: {{{logsource}}}\ndetection: {{s: {{{tests}}}, condition: s}}\n"
    rules = load(rule, pipelines, **options)
    assert rules.errors == []
    return rules["t"].split("FILTER event", 1)[1][1:-1]


WINDOWS = [
    (
        "category: process_creation",
        "CommandLine: x",
        f"(EventID = 1 AND {SYSMON} OR EventID = 4688 AND {SECURITY}) AND (CommandLine GLOB 'x' NOCASE)",
    ),
    (
        "category: process_creation",
        "Image: x, IntegrityLevel: [High, S-1-16-12288]",
        f"((EventID = 1 AND {SYSMON}) AND (Image GLOB 'x' NOCASE AND IntegrityLevel GLOB "
        f"{{'High', 'S-1-16-12288'}} NOCASE)) OR ((EventID = 4688 AND {SECURITY}) AND (NewProcessName GLOB 'x' NOCASE "
        "AND MandatoryLabel GLOB 'S-1-16-12288' NOCASE))",
    ),
    (
        "category: network_connection",
        "Initiated: 'true'",
        f"((EventID = 3 AND {SYSMON}) AND (Initiated GLOB 'true' NOCASE)) OR "
        f"((EventID = 5156 AND {SECURITY}) AND (Direction GLOB '%%14593' NOCASE))",
    ),
    (
        "category: registry_event",
        r"TargetObject|startswith: 'HKLM\SYSTEM\CurrentControlSet\x'",
        rf"((EventID IN {{12, 13, 14}} AND {SYSMON}) AND "
        r"(TargetObject GLOB 'HKLM\SYSTEM\CurrentControlSet\x*' NOCASE)) OR "
        rf"((EventID = 4657 AND {SECURITY}) AND (concat(ObjectName, '\', ObjectValueName) GLOB "
        r"'\REGISTRY\MACHINE\SYSTEM\ControlSet???\x*' NOCASE))",
    ),
    (
        "category: registry_add",
        "a: x",
        f"(EventID = 12 AND {SYSMON} AND "
        "(EventType NOT GLOB {'DeleteKey', 'DeleteValue'} NOCASE OR EventType IS NULL)) AND (a GLOB 'x' NOCASE)",
    ),
    ("category: image_load", "a: x", f"(EventID = 7 AND {SYSMON}) AND (a GLOB 'x' NOCASE)"),
    (
        "category: ps_script",
        "a: x",
        "(EventID = 4104 AND Channel GLOB {'Microsoft-Windows-PowerShell/Operational', 'PowerShellCore/Operational'}"
        " NOCASE) AND (a GLOB 'x' NOCASE)",
    ),
    ("service: security", "EventID: 4624", f"({SECURITY}) AND (EventID = 4624)"),
    (
        "service: sysmon, category: driver_load",
        "a: x",
        f"(EventID = 6 AND {SYSMON}) AND (a GLOB 'x' NOCASE)",
    ),
    ("definition: any", "a: x", "a GLOB 'x' NOCASE"),
]


@pytest.mark.parametrize(("logsource", "tests", "text"), WINDOWS)
def test_log_sources_of_windows(logsource, tests, text):
    assert predicate(f"product: windows, {logsource}", tests, "windows") == text


def test_one_of_two_logs_may_be_chosen():
    source, tests = "product: windows, category: process_creation", "Image: x"
    assert predicate(source, tests, "sysmon") == f"(EventID = 1 AND {SYSMON}) AND (Image GLOB 'x' NOCASE)"
    audited = f"(EventID = 4688 AND {SECURITY}) AND (NewProcessName GLOB 'x' NOCASE)"
    assert predicate(source, tests, "windows_audit") == audited


ECS = [
    (
        "category: image_load, product: windows",
        "Image: x, User: y, Other: z",
        "(`host.os.type` GLOB 'windows' NOCASE AND `event.category` GLOB 'library' NOCASE AND "
        f"{NO_CHANNEL} OR `event.code` = 7 AND {OF_SYSMON})"
        " AND ((`process.executable` GLOB 'x' NOCASE OR `winlog.event_data.Image` GLOB 'x' NOCASE) AND "
        r"(concat(`user.domain`, '\', `user.name`) GLOB 'y' NOCASE OR `winlog.event_data.User` GLOB 'y' NOCASE)"
        " AND `winlog.event_data.Other` GLOB 'z' NOCASE)",
    ),
    (
        "category: process_creation, product: linux",
        "Image: x, Other: z",
        f"(`host.os.type` GLOB 'linux' NOCASE AND {STARTS})"
        " AND (`process.executable` GLOB 'x' NOCASE AND Other GLOB 'z' NOCASE)",
    ),
    (
        "service: security, product: windows",
        "EventID: 4624, a.b: x",
        "(`winlog.channel` GLOB 'Security' NOCASE OR `host.os.type` GLOB 'windows' NOCASE AND `winlog.channel` IS NULL)"
        " AND (`event.code` = 4624 AND `a.b` GLOB 'x' NOCASE)",
    ),
    (
        "category: network_connection",
        "Initiated: 'true'",
        "((`event.category` GLOB 'network' NOCASE AND `dns.question.name` IS NULL AND "
        f"{NO_CHANNEL} OR `event.code` = 3 AND {OF_SYSMON}) AND (`network.direction` GLOB {{'egress', 'true'}} NOCASE "
        "OR `winlog.event_data.Initiated` GLOB {'egress', 'true'} NOCASE)) OR "
        "((`event.code` = 5156 AND `winlog.channel` GLOB 'Security' NOCASE) AND "
        "(`winlog.event_data.Direction` GLOB '%%14593' NOCASE))",
    ),
    (
        "category: sysmon_error, product: windows",
        "a: x",
        f"(`host.os.type` GLOB 'windows' NOCASE AND `event.code` = 255 AND {NO_CHANNEL} OR "
        f"`event.code` = 255 AND {OF_SYSMON})"
        " AND (`winlog.event_data.a` GLOB 'x' NOCASE)",
    ),
]


@pytest.mark.parametrize(("logsource", "tests", "text"), ECS)
def test_log_sources_of_ecs(logsource, tests, text):
    assert predicate(logsource, tests, "ecs") == text


def test_several_pipelines_are_alternatives():
    text = predicate("product: windows, category: image_load", "ImageLoaded: x", ["windows", "ecs"])
    assert text == (
        f"((EventID = 7 AND {SYSMON}) AND (ImageLoaded GLOB 'x' NOCASE)) OR ((`host.os.type` GLOB 'windows' NOCASE AND "
        f"`event.category` GLOB 'library' NOCASE AND {NO_CHANNEL} OR `event.code` = 7 AND {OF_SYSMON}) AND "
        "(`dll.path` GLOB 'x' NOCASE OR `dll.path` IS NULL AND `file.path` GLOB 'x' NOCASE OR "
        "`winlog.event_data.ImageLoaded` GLOB 'x' NOCASE))"
    )


@pytest.mark.parametrize("pipeline", ["windows", "sysmon", "windows_audit", "ecs"])
@pytest.mark.parametrize(
    "logsource",
    ["product: linux, service: auditd", "category: proxy", "product: windows, category: nosuch", "service: x"],
)
def test_a_log_source_that_no_pipeline_knows_is_refused(pipeline, logsource):
    rules = load(f"title: t\nlogsource: {{{logsource}}}\ndetection: {{s: {{a: x}}, condition: s}}\n", pipeline)
    ((_, error),) = rules.errors
    words = logsource.replace(":", "")
    assert error.message == f"the log source ({words}) is none of the pipeline {pipeline}"
    assert "1: log sources that the pipelines do not know" in rules.summary()


def test_pysigma_finds_the_plugin(monkeypatch):
    monkeypatch.setattr(sigma.backends, "__path__", [str(PLUGIN / "backends")])
    monkeypatch.setattr(sigma.pipelines, "__path__", [*sigma.pipelines.__path__, str(PLUGIN / "pipelines")])
    found = InstalledSigmaPlugins.autodiscover(include_validators=False)
    assert found.backends["cer_gpu"] is CerGpuBackend
    names = [f"cer_gpu_{name}" for name in FINDERS]
    assert {*names} <= found.pipelines.keys()
    rule = "title: t\nlogsource: {product: windows, category: image_load}\ndetection: {s: {a: x}, condition: s}\n"
    for name in names[:2]:
        pipeline = found.get_pipeline_resolver().resolve([name])
        (text,) = found.backends["cer_gpu"](pipeline).convert(SigmaCollection.from_yaml(rule))
        assert text == load(rule, name.removeprefix("cer_gpu_"))["t"]


def test_the_back_end_collects_errors_if_asked_to():
    rule = SigmaRule.from_yaml("title: t\nlogsource: {product: x}\ndetection: {s: {a|expand: '%b%'}, condition: s}\n")
    backend = CerGpuBackend(collect_errors=True)
    assert backend.convert(SigmaCollection([rule])) == []
    ((wrong, error),) = backend.errors
    assert wrong is rule
    assert "%b%" in str(error)


@pytest.mark.long("reads thousands of rules")
@pytest.mark.skipif(not (FOLDER.parent / "rules" / "sigma_rules.zip").exists(), reason="rules of SigmaHQ are not there")
def test_nearly_all_rules_of_sigmahq_for_windows_have_a_text(tmp_path):
    with zipfile.ZipFile(FOLDER.parent / "rules" / "sigma_rules.zip") as archive:
        archive.extractall(tmp_path)
    rules = load(tmp_path, "windows")
    assert len(rules) == 2856
    kinds = [line.strip() for line in rules.summary().split("\n")[2:]]
    assert kinds == ["899: log sources that the pipelines do not know", "2: placeholders without values"]
    assert len(load(tmp_path)) == 3755


@pytest.mark.parametrize(
    ("source", "pipeline", "near"),
    [
        ("product: windows, service: secruity", "windows", "service 'security'"),
        ("product: windws, service: security", "windows", "product 'windows'"),
        ("product: Windows, category: process_creation", "sysmon", "product 'windows'"),
        ("product: windows, category: proces_creation", "ecs", "category 'process_creation'"),
        ("category: Process_Creation", "ecs", "category 'process_creation'"),
        ("product: linux, category: process_creation", "windows", None),
        ("product: linux, service: auditd", "windows", None),
        ("category: proxy", "ecs", None),
    ],
)
def test_an_unknown_log_source_is_named_with_the_nearest(source, pipeline, near):
    rules = load(f"title: T\nlogsource: {{{source}}}\ndetection: {{s: {{a: 1}}, condition: s}}", pipeline)
    ((_, error),) = rules.errors
    assert str(error).partition("\nhint: ")[2] == (f"did you mean {near}?" if near else "")
    assert (f"T: did you mean {near}?" in rules.summary()) == (near is not None)
