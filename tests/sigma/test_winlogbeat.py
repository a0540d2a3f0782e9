"""Rules of the pipeline ``ecs`` find in events as winlogbeat writes them what those of ``windows`` find in others."""

import random
import re
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from outside_data import FOLDER

import cer_gpu
import cer_gpu.sigma
from tests.sigma.made_events import Maker
from tests.sigma.test_regression_cases import as_written, cases, named_rules
from tests.sigma.winlogbeat_events import with_modules, without_modules

yaml = pytest.importorskip("yaml")
pytest.importorskip("sigma")

RULES = FOLDER.parent / "rules" / "sigma_rules.zip"
EVENTS = FOLDER / "windows.parquet"
SHAPES = [with_modules, without_modules]
SYSMON = "Microsoft-Windows-Sysmon/Operational"
needs_rules = pytest.mark.skipif(not RULES.exists(), reason="the rules are not there")
N_OF_KIND = 60


def table_of(events):
    """Return a table of events, lists as lists and all else as texts."""
    names = dict.fromkeys(name for event in events for name in event)
    columns = {}
    for name in names:
        values = [event.get(name) for event in events]
        is_list = any(isinstance(each, list) for each in values)
        kind = pa.list_(pa.string()) if is_list else pa.string()
        columns[name] = pa.array(values if is_list else [as_written(each) for each in values], kind)
    return pa.table(columns)


def found(rules, table):
    answers = cer_gpu.compile_all(dict(rules), type_column=None).evaluate(table, output="ends")
    return {name: answer["end"].to_pylist() for name, answer in answers.items()}


def both(rules, events, shape):
    """Return what rules find in events, and in the same ones as winlogbeat writes them."""
    of_windows, of_ecs = (cer_gpu.sigma.load(rules, pipeline) for pipeline in ("windows", "ecs"))
    assert set(of_windows) <= set(of_ecs)
    expected = found(of_windows, table_of(events))
    given = found({name: of_ecs[name] for name in of_windows}, table_of([shape(event) for event in events]))
    return expected, given


def rules_of_conditions(conditions, source, detection):
    """Return a rule for each condition, named by it, about events of a source and the detection `s`."""
    rules = [
        {"title": condition, "logsource": source, "detection": {"s": detection, "condition": condition}}
        for condition in conditions
    ]
    return [yaml.safe_dump(rule) for rule in rules]


# ---- mappings

PROCESS = {"Image": r"C:\a.exe", "User": r"CORP\ann", "ProcessGuid": "{1}", "ProcessId": "7"}
OF_SYSMON = [
    ("process_creation", 1, "Image|endswith: a.exe", {}, {"Image": "b"}),
    ("process_creation", 1, r"User: CORP\ann", {}, {"User": r"CORP\bob"}),
    ("process_creation", 1, "IntegrityLevel: High", {"IntegrityLevel": "High"}, {"IntegrityLevel": "Low"}),
    ("process_creation", 1, "CommandLine: x", {"CommandLine": "x"}, {"ParentCommandLine": "x"}),
    ("process_creation", 1, "ParentImage: x", {"ParentImage": "x"}, {"Image": "x"}),
    ("process_creation", 1, "OriginalFileName: x", {"OriginalFileName": "x"}, {"OriginalFileName": "y"}),
    ("process_creation", 1, "Company: x", {"Company": "x"}, {"Product": "x"}),
    ("process_creation", 1, "Hashes|contains: MD5=0A", {"Hashes": "SHA1=FF,MD5=0A"}, {"Hashes": "SHA1=0A,MD5=FF"}),
    ("process_creation", 1, "Hashes|contains: IMPHASH=0A", {"Hashes": "MD5=1,IMPHASH=0A"}, {"Hashes": "MD5=0A"}),
    ("image_load", 7, "Hashes|contains: SHA256=0A", {"Hashes": "SHA256=0A"}, {"Hashes": "SHA1=0A"}),
    ("image_load", 7, "ImageLoaded: x", {"ImageLoaded": "x"}, {"Image": "x"}),
    ("image_load", 7, "OriginalFileName: x", {"OriginalFileName": "x"}, {"OriginalFileName": "y"}),
    ("image_load", 7, "Signed: 'false'", {"Signed": "false"}, {"Signed": "true"}),
    ("image_load", 7, "SignatureStatus: Valid", {"SignatureStatus": "Valid"}, {"SignatureStatus": "Expired"}),
    ("driver_load", 6, "ImageLoaded: x", {"ImageLoaded": "x"}, {"ImageLoaded": "y"}),
    ("driver_load", 6, "Hashes|contains: MD5=0A", {"Hashes": "MD5=0A"}, {"Hashes": "MD5=0B"}),
    ("network_connection", 3, "DestinationHostname: x", {"DestinationHostname": "x"}, {"SourceHostname": "x"}),
    ("network_connection", 3, "SourceHostname: x", {"SourceHostname": "x"}, {"DestinationHostname": "x"}),
    ("network_connection", 3, "Initiated: 'true'", {"Initiated": "true"}, {"Initiated": "false"}),
    ("network_connection", 3, "DestinationPort: 443", {"DestinationPort": "443"}, {"SourcePort": "443"}),
    (
        "network_connection",
        3,
        "DestinationIp|cidr: 10.0.0.0/8",
        {"DestinationIp": "10.1.1.1"},
        {"SourceIp": "10.1.1.1"},
    ),
    ("dns_query", 22, "QueryName: x", {"QueryName": "x"}, {"QueryName": "y"}),
    ("file_event", 11, "TargetFilename: x", {"TargetFilename": "x"}, {"TargetFilename": "y"}),
    ("file_delete", 23, "TargetFilename: x", {"TargetFilename": "x"}, {"Image": "x"}),
    ("create_stream_hash", 15, "Hash|contains: MD5=0A", {"Hash": "MD5=0A"}, {"Hash": "MD5=0B"}),
    ("create_stream_hash", 15, "Contents: x", {"Contents": "x"}, {"Contents": "y"}),
    ("pipe_created", 17, r"PipeName: \x", {"PipeName": r"\x"}, {"PipeName": r"\y"}),
    ("process_access", 10, "SourceImage: x", {"SourceImage": "x", "Image": None}, {"TargetImage": "x"}),
    ("process_access", 10, "TargetImage: x", {"TargetImage": "x"}, {"SourceImage": "x", "Image": None}),
    ("create_remote_thread", 8, "TargetImage: x", {"TargetImage": "x"}, {"TargetImage": "y"}),
    ("wmi_event", 20, "Destination: x", {"Destination": "x", "Image": None}, {"Type": "x"}),
    ("registry_set", 13, "TargetObject: x", {"TargetObject": "x"}, {"TargetObject": "y"}),
    ("registry_set", 13, "Details: text", {"Details": "text"}, {"Details": "texts"}),
    ("registry_set", 13, "Details: DWORD (0x0000000a)", {"Details": "DWORD (0x0000000a)"}, {"Details": "10"}),
    ("registry_set", 13, "Details: '10'", {"Details": "10"}, {"Details": "DWORD (0x0000000a)"}),
    ("registry_set", 13, "Details|startswith: QWORD", {"Details": "QWORD (0x00000000-0x0000000a)"}, {"Details": "x"}),
    ("registry_set", 13, "Details: Binary Data", {"Details": "Binary Data"}, {"Details": "binary"}),
    ("registry_event", 14, "NewName: x", {"NewName": "x"}, {"NewName": "y"}),
    ("registry_add", 12, "TargetObject: x", {"TargetObject": "x", "EventType": "CreateKey"}, {"TargetObject": "y"}),
    ("registry_delete", 12, "TargetObject: x", {"TargetObject": "x", "EventType": "DeleteKey"}, {"TargetObject": "y"}),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("category", "number", "tests", "fires", "fails"), OF_SYSMON)
def test_fields_of_sysmon(shape, category, number, tests, fires, fails):
    field, _, value = tests.partition(": ")
    event = PROCESS | {"EventID": str(number), "Channel": SYSMON}
    events = [
        {name: each for name, each in (event | more).items() if each is not None}
        for more in (fires, fails, fires | {"EventID": "99"}, fires | {"Channel": "Other"})
    ]
    detection, source = {field: yaml.safe_load(value)}, {"product": "windows", "category": category}
    expected = {"s": [0], "not s": [1]}
    assert both(rules_of_conditions(expected, source, detection), events, shape) == (expected, expected)


KINDS = [(12, "CreateKey"), (12, "DeleteKey"), (12, "DeleteValue"), (13, "SetValue"), (14, "RenameKey")]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("category", "expected"),
    [("registry_add", [0]), ("registry_delete", [1, 2]), ("registry_set", [3]), ("registry_event", [0, 1, 2, 3, 4])],
)
def test_events_of_the_registry_are_told_by_number_and_kind(shape, category, expected):
    events = [{"EventID": str(n), "Channel": SYSMON, "EventType": kind, "TargetObject": "x"} for n, kind in KINDS]
    rule = f"title: t\nlogsource: {{product: windows, category: {category}}}\n"
    rule += "detection: {s: {TargetObject: x}, condition: s}"
    assert both([rule], events, shape) == ({"t": expected}, {"t": expected})


AUDIT = {"Channel": "Security"}
OF_SECURITY = [
    ("category: process_creation", "Image: x", {"EventID": "4688", "NewProcessName": "x"}, {"NewProcessName": "y"}),
    (
        "category: process_creation",
        "ParentImage: x",
        {"EventID": "4688", "ParentProcessName": "x"},
        {"ParentProcessName": "y"},
    ),
    ("category: process_creation", "CommandLine: x", {"EventID": "4688", "CommandLine": "x"}, {"CommandLine": "y"}),
    (
        "category: process_creation",
        "User|contains: AUTHORI",
        {"EventID": "4688", "SubjectUserSid": "S-1-5-18", "SubjectUserName": "PC$", "SubjectDomainName": "CORP"},
        {"SubjectUserSid": "S-1-5-21"},
    ),
    ("category: process_termination", "Image: x", {"EventID": "4689", "ProcessName": "x"}, {"ProcessName": "y"}),
    (
        "category: network_connection",
        "Initiated: 'true'",
        {"EventID": "5156", "Direction": "%%14593"},
        {"Direction": "x"},
    ),
    (
        "category: registry_set",
        r"TargetObject|startswith: HKLM\k",
        {"EventID": "4657", "ObjectName": r"\REGISTRY\MACHINE\k", "ObjectValueName": "v"},
        {"ObjectName": r"\REGISTRY\USER\k"},
    ),
    (
        "category: registry_set",
        "Details: DWORD (0x0000000a)",
        {"EventID": "4657", "NewValue": "10", "NewValueType": "%%1876"},
        {"NewValueType": "%%1873"},
    ),
    ("service: security", "NewProcessName: x", {"EventID": "4688", "NewProcessName": "x"}, {"NewProcessName": "y"}),
    ("service: security", "ProcessName: x", {"EventID": "4689", "ProcessName": "x"}, {"ProcessName": "y"}),
    (
        "service: security",
        "IpAddress: 10.1.1.1",
        {"EventID": "4624", "IpAddress": "10.1.1.1"},
        {"IpAddress": "10.1.1.2"},
    ),
    ("service: security", "WorkstationName: x", {"EventID": "4624", "WorkstationName": "x"}, {"WorkstationName": "y"}),
    ("service: security", "TargetUserName: x", {"EventID": "4624", "TargetUserName": "x"}, {"TargetUserName": "y"}),
    (
        "service: windefend",
        "ThreatName: x",
        {"Channel": "Microsoft-Windows-Windows Defender/Operational", "Threat Name": "x"},
        {"Threat Name": "y"},
    ),
    (
        "category: ps_script",
        "ScriptBlockText: x",
        {"Channel": "PowerShellCore/Operational", "EventID": "4104", "ScriptBlockText": "x"},
        {"ScriptBlockText": "y"},
    ),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("source", "tests", "fires", "fails"), OF_SECURITY)
def test_fields_of_other_logs(shape, source, tests, fires, fails):
    field, _, value = tests.partition(": ")
    kept = {name: each for name, each in fires.items() if name not in fails or name == "EventID"}
    events = [AUDIT | {"EventID": "1"} | fires, AUDIT | {"EventID": "1"} | kept | fails]
    detection, source = {field: yaml.safe_load(value)}, yaml.safe_load(f"{{product: windows, {source}}}")
    expected = {"s": [0], "not s": [1]}
    assert both(rules_of_conditions(expected, source, detection), events, shape) == (expected, expected)


def test_a_summary_asks_for_one_of_the_columns_of_a_field():
    rule = (
        "title: t\nlogsource: {product: windows, category: image_load}\ndetection: {s: {ImageLoaded: x}, condition: s}"
    )
    rules = cer_gpu.sigma.load(rule, "ecs")
    of_all = [(name, pa.string()) for name in ("host.os.type", "event.category", "event.code", "winlog.channel")]
    kinds = [
        pa.schema([*of_all, *((name, pa.string()) for name in more)]) for more in ((), ["file.path"], ["dll.path"])
    ]
    assert [rules.missing(each) for each in kinds] == [{"dll.path": 1}, {}, {}]


# ---- recorded events, and such that are made to fit the rules


def recorded_events():
    """Return some recorded events of every kind."""
    table = pq.read_table(EVENTS)
    seen, rows = {}, []
    for row, kind in enumerate(zip(table["Channel"].to_pylist(), table["EventID"].to_pylist(), strict=True)):
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= N_OF_KIND or (seen[kind] % 40 == 0 and seen[kind] < 40 * N_OF_KIND):
            rows.append(row)
    kept = [name for name in table.column_names if name not in ("ts", "dataset", "Hostname")]
    events = table.select(kept).take(rows).to_pylist()
    return [{name: str(each) for name, each in event.items() if each is not None} for event in events]


def texts_of_rules():
    """Return the texts of the rules about Windows without placeholders."""
    with zipfile.ZipFile(RULES) as archive:
        names = sorted(name for name in archive.namelist() if "/windows/" in name and name.endswith(".yml"))
        texts = [archive.read(name).decode() for name in names]
    return [text for text in texts if "|expand" not in text]


@pytest.mark.long("reads thousands of rules")
@pytest.mark.skipif(not (EVENTS.exists() and RULES.exists()), reason="the events or the rules are not there")
@pytest.mark.parametrize("shape", SHAPES)
def test_all_rules_find_the_same_in_recorded_events(shape):
    expected, given = both(texts_of_rules(), recorded_events(), shape)
    assert given == expected
    assert sum(map(bool, expected.values())) > 50


POWERSHELL = {
    "powershell-classic": (400, "Windows PowerShell"),
    "ps_module": (4103, "Microsoft-Windows-PowerShell/Operational"),
    "ps_classic_start": (400, "Windows PowerShell"),
    "ps_classic_provider_start": (600, "Windows PowerShell"),
    "ps_classic_script": (800, "Windows PowerShell"),
}
"""Events whose texts winlogbeat's module takes apart."""


def numbered(event, rule):
    """Return an event made for a rule as one of its log source, with values that winlogbeat could have read."""
    from cer_gpu.sigma.pipelines.windows_logs import CHANNELS, SYSMON_EVENTS

    source = rule["logsource"]
    event = {name: each for name, each in event.items() if each is not None}
    if source.get("category") in SYSMON_EVENTS:
        event |= {"EventID": str(SYSMON_EVENTS[source["category"]][0]), "Channel": SYSMON}
    elif source.get("category") in POWERSHELL:
        number, channel = POWERSHELL[source["category"]]
        event |= {"EventID": str(number), "Channel": channel}
    elif source.get("service") in CHANNELS:
        event |= {"EventID": str(event.get("EventID", 7)), "Channel": CHANNELS[source["service"]][0]}
    if "User" in event:
        event["User"] = "CORP\\" + event["User"].rpartition("\\")[2]
    for name in {"Hashes", "Hash"} & event.keys():
        pairs = re.findall(r"(?i)(MD5|SHA1|SHA256|IMPHASH)=([0-9a-f]+)", event[name])
        event[name] = ",".join(f"{algorithm}={digits}" for algorithm, digits in dict(pairs).items())
    for name in {"Initiated", "SourceIsIpv6", "DestinationIsIpv6"} & event.keys():
        event[name] = "true" if "t" in event[name].lower() else "false"
    return event


NOT_TOLD = {
    "Password Dumper Remote Thread in LSASS",  # asks for an empty StartModule, which is dropped
    "Hidden Executable In NTFS Alternate Data Stream",  # asks for no hash of zeros, which is dropped
}
"""Rules that find others behind winlogbeat's modules."""


@pytest.mark.long("reads thousands of rules")
@needs_rules
@pytest.mark.parametrize("shape", SHAPES)
def test_all_rules_find_the_same_in_events_that_are_made_to_fit(shape):
    texts = texts_of_rules()
    maker = Maker(random.Random(7))
    rules = [rule for rule in map(yaml.safe_load, texts) if "detection" in rule]
    events = [numbered(maker.event(rule), rule) for rule in rules for _ in range(2)]
    expected, given = both(texts, events, shape)
    sources = {rule["title"]: rule["logsource"] for rule in rules}
    taken_apart = {title for title, source in sources.items() if {*POWERSHELL} & {*map(str, source.values())}}
    not_told = (NOT_TOLD | taken_apart) if shape is with_modules else set()
    assert {name for name in expected if expected[name] != given[name]} <= not_told
    assert sum(map(bool, expected.values())) > 1_500


@pytest.mark.skipif(
    not ((FOLDER / "sigma_regression.zip").exists() and RULES.exists()), reason="the cases are not there"
)
@pytest.mark.parametrize("shape", SHAPES)
def test_rules_fire_on_the_events_that_were_recorded_for_them(shape):
    known = list(cases())
    texts = named_rules({rule for rule, _ in known})
    events = [{name: each for name, each in event.items() if each is not None} for _, of in known for event in of]
    expected, given = both(
        list(texts.values()), [{name: as_written(each) for name, each in event.items()} for event in events], shape
    )
    assert sum(map(bool, expected.values())) > 80
    assert {name: rows for name, rows in given.items() if rows != expected[name]} == {}
