"""Pipelines of Linux, CloudTrail and Zeek: rules over the records that the readers of such logs give."""

import io
import zipfile
from functools import cache

import pyarrow as pa
import pytest
import yaml
from outside_data import FOLDER

import cer_gpu
from cer_gpu.io.logs import auditd, sysmon_linux, zeek
from cer_gpu.io.logs.records import Skipped
from cer_gpu.sigma import load

RULES = FOLDER.parent / "rules" / "sigma_rules.zip"


def events_of(reader, text):
    """Return the records of a log as a table; every record must be read."""
    skipped = Skipped()
    found = list(reader.records(io.BytesIO(text.encode()), skipped))
    assert not skipped.reasons
    names = dict.fromkeys(name for record in found for name in record)
    return pa.Table.from_pylist([{name: record.get(name) for name in names} for record in found])


def rows_found(events, pipeline, source, tests):
    """Return the rows that a rule of a log source finds."""
    rules = load(f"title: t\nlogsource: {{{source}}}\ndetection:\n{tests}\n  condition: s", pipeline)
    assert rules.errors == []
    (answer,) = cer_gpu.compile_all(rules).evaluate(events, output="ends").values()
    return answer["end"].to_pylist()


AUDITD = """\
type=SYSCALL msg=audit(1700000000.123:456): syscall=59 a0=1f euid=33 comm="chmod" exe="/usr/bin/chmod" key=(null)\x1d\
SYSCALL=execve UID="www-data"
type=EXECVE msg=audit(1700000000.123:456): argc=3 a0="chmod" a1="777" a2=2F746D702F612062
type=PATH msg=audit(1700000000.123:456): item=0 name="/etc/ld.so.preload" nametype=NORMAL
type=USER_CMD msg=audit(1700000001.000:457): pid=1 uid=0 msg='cwd="/root" cmd=686973746F7279202D63 res=success'
type=SERVICE_STOP msg=audit(1700000002.000:458): pid=1 msg='unit=firewalld comm="systemd" res=success'
"""


@pytest.mark.parametrize(
    ("tests", "rows"),
    [
        ("  s: {type: EXECVE, a0: chmod, a1: 777}", [1]),
        ("  s: {type: execve, a2|endswith: '/a b'}", [1]),
        ("  s: {type: SYSCALL, SYSCALL: [execve, execveat], euid: 33}", [0]),
        ("  s: {type: PATH, name: /etc/ld.so.preload}", [2]),
        ("  s: {type: SERVICE_STOP, unit: [firewalld, ufw]}", [4]),
        ("  s: {key: null, exe|endswith: /chmod}", [0]),
        ("  s: ['history -c']", [3]),
        ("  s: {Image: /usr/bin/chmod}", []),
    ],
)
def test_records_of_auditd(tests, rows):
    events = events_of(auditd, AUDITD)
    assert rows_found(events, "linux", "product: linux, service: auditd", tests) == rows


def sysmon_event(number, **data):
    items = "".join(f'<Data Name="{name}">{value}</Data>' for name, value in data.items())
    return (
        f'Nov 27 12:00:00 web1 sysmon: <Event><System><Provider Name="Linux-Sysmon"/><EventID>{number}</EventID>'
        '<TimeCreated SystemTime="2021-10-16T00:41:27.577774000Z"/><Channel>Linux-Sysmon/Operational</Channel></System>'
        f"<EventData>{items}</EventData></Event>\n"
    )


SYSMON = (
    sysmon_event(1, Image="/usr/bin/base64", CommandLine="base64 -d x &gt; y", User="root")
    + sysmon_event(3, Image="/usr/bin/bash", DestinationIp="10.1.2.3", DestinationPort="4444", Initiated="true")
    + sysmon_event(11, Image="/usr/bin/vi", TargetFilename="/etc/cron.d/x")
    + sysmon_event(23, Image="/usr/bin/rm", TargetFilename="/var/log/syslog")
)


@pytest.mark.parametrize(
    ("source", "tests", "rows"),
    [
        ("category: process_creation", "{Image|endswith: /base64, CommandLine|contains: '-d x > '}", [0]),
        ("category: network_connection", "{Initiated: 'true', DestinationPort: 4444}", [1]),
        ("category: network_connection", "{DestinationIp|cidr: 10.0.0.0/8}", [1]),
        ("category: file_event", "{TargetFilename|startswith: /}", [2]),
        ("category: file_delete", "{TargetFilename|startswith: /}", [3]),
        ("service: sysmon", "{Image|startswith: /}", [0, 1, 2, 3]),
        ("service: sysmon, category: file_event", "{Image|startswith: /}", [2]),
        ("service: auditd", "{Image|startswith: /}", []),
        ("service: sshd", "{Image|startswith: /}", []),
    ],
)
def test_events_of_sysmon_for_linux(source, tests, rows):
    events = events_of(sysmon_linux, SYSMON)
    assert rows_found(events, "linux", f"product: linux, {source}", f"  s: {tests}") == rows


def test_lines_of_programs_are_what_is_neither_of_auditd_nor_of_sysmon():
    line = {"message": "sshd[1]: Corrupted MAC on input", "type": None}
    command = {"message": None, "type": "EXECVE", "a1": "Corrupted MAC on input"}
    events = pa.Table.from_pylist([line | {"a1": None}, command])
    assert rows_found(events, "linux", "product: linux, service: sshd", "  s: [Corrupted MAC on input]") == [0]
    assert rows_found(events, "linux", "product: linux", "  s: [Corrupted MAC on input]") == [0, 1]


HTTP = """\
#separator \\x09
#set_separator\t,
#empty_field\t(empty)
#unset_field\t-
#path\thttp
#fields\tts\tid.orig_h\tid.resp_h\tid.resp_p\tmethod\thost\turi\tuser_agent\tstatus_code\tresp_mime_types
#types\ttime\taddr\taddr\tport\tstring\tstring\tstring\tstring\tcount\tvector[string]
1700000000.000001\t10.0.0.1\t1.2.3.4\t80\tGET\tevil.top\t/a.exe\tWebDAV\t200\ttext/plain,application/x-dosexec
1700000001.000001\t192.168.0.1\t10.0.0.9\t80\tPOST\t-\t/wsman\t-\t404\t-
#path\tdns
#fields\tts\tid.orig_h\tid.resp_p\tquery\tqtype_name\tanswers\trejected
#types\ttime\taddr\tport\tstring\tstring\tvector[string]\tbool
1700000002.000001\t10.0.0.1\t53\tpool.minexmr.com\tA\t1.2.3.4\tF
1700000003.000001\t10.0.0.1\t53\tpool.minexmr.com\tA\t127.0.0.1\tT
"""


@pytest.mark.parametrize(
    ("source", "tests", "rows"),
    [
        ("product: zeek, service: http", "{c-useragent|contains: webdav, c-uri|endswith: .exe}", [0]),
        ("product: zeek, service: http", "{resp_mime_types|contains: dosexec, status_code: 200}", [0]),
        ("product: zeek, service: http", "{id.resp_h|cidr: 10.0.0.0/8, uri: /wsman}", [1]),
        ("product: zeek, service: dns", "{query|endswith: minexmr.com, rejected: 'false'}", [2]),
        ("product: zeek, service: dns", "{answers: [127.0.0.1, 0.0.0.0]}", [3]),
        ("product: zeek, service: conn", "{id.orig_h: 10.0.0.1}", []),
        ("product: zeek", "{id.orig_h: 10.0.0.1}", [0, 2, 3]),
        ("category: proxy", "{c-uri: 'http://evil.top/a.exe', cs-method: GET}", [0]),
        ("category: webserver", "{cs-uri-query|startswith: /wsm, sc-status: 404}", [1]),
        ("category: dns", "{query|contains: pool, record_type: A, answer: 1.2.3.4}", [2]),
        ("category: firewall", "{src_ip: 10.0.0.1}", []),
    ],
)
def test_logs_of_zeek(source, tests, rows):
    assert rows_found(events_of(zeek, HTTP), "zeek", source, f"  s: {tests}") == rows


CLOUDTRAIL = [
    {
        "eventSource": "signin.amazonaws.com",
        "eventName": "ConsoleLogin",
        "userIdentity": {"type": "Root", "arn": "arn:aws:iam::1:root", "sessionContext": None},
        "additionalEventData": {"MFAUsed": "No"},
        "requestParameters": None,
        "errorCode": None,
    },
    {
        "eventSource": "guardduty.amazonaws.com",
        "eventName": "UpdateDetector",
        "userIdentity": {"type": "AssumedRole", "arn": "arn:aws:sts::1:x", "sessionContext": {"issuer": "Role"}},
        "additionalEventData": None,
        "requestParameters": {"enable": False},
        "errorCode": "AccessDenied",
    },
    {"eventSource": None, "eventName": "no record of CloudTrail"},
]


@pytest.mark.parametrize(
    ("tests", "rows"),
    [
        ("{eventName: ConsoleLogin, additionalEventData.MFAUsed: 'no'}", [0]),
        ("{userIdentity.arn|endswith: ':root'}", [0]),
        ("{requestParameters.enable: 'false'}", [1]),
        ("{userIdentity.sessionContext.issuer: role, errorCode|contains: denied}", [1]),
        ("{errorCode: null}", [0]),
    ],
)
def test_records_of_cloudtrail(tests, rows):
    events = pa.Table.from_pylist(CLOUDTRAIL)
    assert rows_found(events, "cloudtrail", "product: aws, service: cloudtrail", f"  s: {tests}") == rows


@pytest.mark.parametrize(
    ("source", "pipeline", "near"),
    [
        ("product: linux, service: auditt", "linux", "service 'auditd'"),
        ("product: linx, service: auditd", "linux", "product 'linux'"),
        ("product: linux, category: file_evnt", "linux", "category 'file_event'"),
        ("product: linux, category: image_load", "linux", None),
        ("product: aws, service: cloudtrial", "cloudtrail", "service 'cloudtrail'"),
        ("product: aws, category: process_creation", "cloudtrail", None),
        ("product: aws", "cloudtrail", None),
        ("product: zeek, service: smb_file", "zeek", "service 'smb_files'"),
        ("product: zek, service: conn", "zeek", "product 'zeek'"),
        ("category: proxi", "zeek", "category 'proxy'"),
        ("product: zeek, category: dns, service: dns", "zeek", None),
    ],
)
def test_an_unknown_log_source_is_named_with_the_nearest(source, pipeline, near):
    rules = load(f"title: T\nlogsource: {{{source}}}\ndetection: {{s: {{a: 1}}, condition: s}}", pipeline)
    ((_, error),) = rules.errors
    assert str(error).partition("\nhint: ")[2] == (f"did you mean {near}?" if near else "")


@cache
def documents():
    """Return the rules of SigmaHQ."""
    with zipfile.ZipFile(RULES) as archive:
        texts = [archive.read(name).decode() for name in sorted(archive.namelist()) if name.endswith(".yml")]
    return [document for text in texts for document in yaml.safe_load_all(text) if "logsource" in document]


def rules_about(*wanted):
    """Return how many rules of SigmaHQ are of a product, or of one and a category, and these as one text."""
    sources = [(each["logsource"].get("product"), each["logsource"].get("category")) for each in documents()]
    chosen = [each for each, source in zip(documents(), sources, strict=True) if {*wanted} & {source, source[:1]}]
    return len(chosen), yaml.safe_dump_all(chosen, allow_unicode=True, sort_keys=False)


@pytest.mark.long("reads thousands of rules")
@pytest.mark.skipif(not RULES.exists(), reason="the rules of SigmaHQ are not there")
@pytest.mark.parametrize(
    ("wanted", "pipeline", "n"),
    [
        ([("linux",)], "linux", 248),
        ([("aws",)], "cloudtrail", 57),
        ([("zeek",)], "zeek", 24),
        ([(None, category) for category in ("proxy", "webserver", "dns", "firewall")], "zeek", 155),
    ],
)
def test_all_rules_of_sigmahq_have_a_text(wanted, pipeline, n):
    n_rules, text = rules_about(*wanted)
    rules = load(text, pipeline)
    assert (n_rules, rules.errors, len(rules)) == (n, [], n)
