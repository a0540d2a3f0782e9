"""Logs of auditd: the examples of its documentation, and random records, written as the kernel writes them."""

import io
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cer_gpu.io.logs import records as log_records
from cer_gpu.io.logs.auditd import NOT_A_RECORD, TIME_OUT_OF_RANGE, recognises, records
from cer_gpu.io.logs.records import Skipped
from tests.io.log_streams import WHOLE, cuts, read_records

TIME = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
HEAD = "type={} msg=audit(1700000000.123:456): "


def record_of(kind, fields):
    """Return the fields of one line of a type, without those of its header."""
    found, reasons, _ = read_records(records, (HEAD.format(kind) + fields + "\n").encode(), WHOLE)
    assert reasons == {}
    (record,) = found
    assert [record.pop("type"), record.pop("time"), record.pop("serial")] == [kind, TIME, 456]
    return record


def test_a_system_call_with_its_enriched_part():
    line = (
        'arch=c000003e syscall=59 success=yes exit=0 a0=55d5e8 items=2 auid=1000 tty=(none) comm="ls" exe="/bin/ls" '
        'key=(null)\x1dARCH=x86_64 SYSCALL=execve AUID="ann" UID="domain user"'
    )
    assert record_of("SYSCALL", line) == {
        "arch": "c000003e",
        "syscall": "59",
        "success": "yes",
        "exit": "0",
        "a0": "55d5e8",
        "items": "2",
        "auid": "1000",
        "tty": "(none)",
        "comm": "ls",
        "exe": "/bin/ls",
        "key": None,
        "ARCH": "x86_64",
        "SYSCALL": "execve",
        "AUID": "ann",
        "UID": "domain user",
    }


@pytest.mark.parametrize(
    ("kind", "fields", "wanted"),
    [
        ("PROCTITLE", "proctitle=6C73002D6C6100", {"proctitle": "ls -la"}),
        ("PROCTITLE", 'proctitle="bash"', {"proctitle": "bash"}),
        (
            "EXECVE",
            'argc=3 a0="ls" a1=2F746D702F612062 a2=C3A9',
            {"argc": "3", "a0": "ls", "a1": "/tmp/a b", "a2": "é"},
        ),
        ("EXECVE", 'argc=1 a0="AB12"', {"argc": "1", "a0": "AB12"}),
        ("SYSCALL", "a0=10 a1=20", {"a0": "10", "a1": "20"}),
        ("EXECVE", 'a0="x" a1_len=4 a1[0]=61C3 a1[1]=A962', {"a0": "x", "a1_len": "4", "a1": "aéb"}),
        ("EXECVE", 'a1[0]="ab" a1[1]="cd" a2="]="', {"a1": "abcd", "a2": "]="}),
        ("PATH", "item=0 name=2F61FF inode=7", {"item": "0", "name": r"/a\xff", "inode": "7"}),
        ("PATH", "name=(null) nametype=PARENT", {"name": None, "nametype": "PARENT"}),
        ("TTY", "comm=626173682031 data=6C730D", {"comm": "bash 1", "data": "ls\r"}),
        ("SYSCALL", "key=6B310 key=1", {"key": "6B310"}),
        ("SYSCALL", "key=6B31016B32", {"key": "k1,k2"}),
        (
            "USER_LOGIN",
            'pid=1 uid=0 msg=\'op=login acct="ro\'ot" exe="/usr/sbin/sshd" hostname=? addr=10.0.0.1 uid=7 res=success\''
            '\x1dUID="root"',
            {
                "pid": "1",
                "uid": "0",
                "op": "login",
                "acct": "ro'ot",
                "exe": "/usr/sbin/sshd",
                "hostname": None,
                "addr": "10.0.0.1",
                "res": "success",
                "UID": "root",
            },
        ),
        (
            "USER_CMD",
            'pid=1 msg=\'cwd="/a b" cmd=6C73202D6C res=success',
            {"pid": "1", "cwd": "/a b", "cmd": "ls -l", "res": "success"},
        ),
        ("EXECVE", 'a0="msg=\'x=1\'" a1="y"', {"a0": "msg='x=1'", "a1": "y"}),
        (
            "AVC",
            'avc:  denied  { read open } for  pid=9 comm="cat" path="/etc/shadow" tclass=file',
            {
                "seresult": "denied",
                "seperms": "read,open",
                "pid": "9",
                "comm": "cat",
                "path": "/etc/shadow",
                "tclass": "file",
            },
        ),
        (
            "SOCKADDR",
            "saddr=0200\x1dSADDR={ saddr_fam=inet laddr=10.0.0.1 lport=80 }",
            {"saddr": "0200", "saddr_fam": "inet", "laddr": "10.0.0.1", "lport": "80"},
        ),
        ("KERNEL", "initialized", {}),
        ("SERVICE_START", "msg='unit=cron comm=\"systemd\" type=simple time=3'", {"unit": "cron", "comm": "systemd"}),
    ],
)
def test_fields_of_a_line(kind, fields, wanted):
    assert record_of(kind, fields) == wanted


def test_lines_of_several_hosts_and_events_and_lines_that_are_none():
    log = (
        b'node=web1 type=CWD msg=audit(1.000:1): cwd="/"\n\n'
        b"----\r\n"
        b"type=EOE msg=audit(1700000000.123456:2): \r\n"
        b"type=EOE msg=audit(1700000000.123:99999999999999999999): \n"
        b"type=EOE msg=audit(999999999999999999.0:1): \n"
        b"type=EOE msg=audit(1700000000.1"
    )
    found, reasons, first = read_records(records, log, WHOLE)
    assert found == [
        {"type": "CWD", "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "serial": 1, "node": "web1", "cwd": "/"},
        {"type": "EOE", "time": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC), "serial": 2},
    ]
    assert reasons == {NOT_A_RECORD: 2, TIME_OUT_OF_RANGE: 2}
    assert first == {NOT_A_RECORD: "line 3", TIME_OUT_OF_RANGE: "line 5"}


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        (b"type=SYSCALL msg=audit(1700000000.123:456): arch=c0", True),
        (b"\nnode=a type=CWD msg=audit(1.0:1): ", True),
        (b'{"type": "SYSCALL", "msg": "audit(1700000000.123:456): "}', False),
        (b"Nov 27 12:00:00 host audit: type=CWD msg=audit(1.0:1): ", False),
        (b"", False),
    ],
)
def test_the_beginning_tells_the_format(head, wanted):
    assert recognises(head) is wanted


def test_a_line_that_is_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(log_records, "LONGEST_LINE", 60)
    monkeypatch.setattr(log_records, "_READ_SIZE", 50)
    short = b"type=EOE msg=audit(1.0:1): \n"
    log = short + b"type=CWD msg=audit(1.0:2): cwd=" + b"x" * 40 + b"\n" + short + b"y" * 61
    for sizes in (WHOLE, [1], [7, 30]):
        found, reasons, first = read_records(records, log, sizes)
        assert len(found) == 2
        assert reasons == {log_records.TOO_LONG: 2}
        assert first == {log_records.TOO_LONG: "line 2"}


_ENCODED = ["comm", "exe", "name", "cwd", "proctitle", "key"]
_PLAIN = ["pid", "uid", "success", "x-y", "a0", "op"]
_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\0"), max_size=8)
_words = st.text("abcXYZ019:./-_=,", min_size=1, max_size=6).filter(lambda word: not word.startswith("="))


def written(value):
    """Return a text as the kernel writes one that it does not trust."""
    encoded = value.encode()
    if re.fullmatch(rb"[!#-~]*", encoded):
        return f'"{value}"'
    return encoded.hex().upper()


@st.composite
def written_records(draw):
    kind = draw(st.sampled_from(["SYSCALL", "PATH", "USER_AUTH", "EXECVE"]))
    seconds, micros = draw(st.integers(0, 2**33)), draw(st.integers(0, 999_999))
    wanted = {
        "type": kind,
        "time": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=micros),
        "serial": draw(st.integers(0, 2**63 - 1)),
    }
    line = f"type={kind} msg=audit({seconds}.{micros:06d}:{wanted['serial']}):"
    if draw(st.booleans()):
        wanted["node"] = draw(st.text("abc.1", min_size=1, max_size=5))
        line = f"node={wanted['node']} {line}"
    names = draw(st.lists(st.sampled_from(_ENCODED + _PLAIN), unique=True, max_size=6))
    parts = []
    for name in names:
        is_string = name in _ENCODED or (kind == "EXECVE" and name == "a0")
        value = draw(st.none() | (_texts if is_string else _words))
        parts.append(f"{name}=" + ("(null)" if value is None else written(value) if is_string else value))
        wanted[name] = value
    if kind == "USER_AUTH":
        split = draw(st.integers(0, len(parts)))
        parts[split:] = ["msg='" + " ".join(parts[split:]) + "'"]
    line = " ".join([line, *parts])
    extra = draw(st.dictionaries(st.sampled_from(["AUID", "SYSCALL"]), st.text("abc \t'", max_size=5)))
    if extra:
        line += "\x1d" + " ".join(f'{name}="{value}"' for name, value in extra.items())
    return line, wanted | extra


@given(st.lists(written_records(), max_size=5), cuts, st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read(pairs, sizes, end):
    log = "".join(line + end for line, _ in pairs).encode()
    assert read_records(records, log, sizes) == ([wanted for _, wanted in pairs], {}, {})


_signs = st.sampled_from(
    [b"\n", b"\r", b'"', b"'", b"=", b" ", b"\x1d", b"msg='", b"avc:  x { ", b"}", b"a1[0]=", b"\xff"]
)
_lines = st.sampled_from([HEAD.format(kind).encode() for kind in ("EXECVE", "AVC", "PROCTITLE")])


@given(st.lists(_signs | _lines | st.binary(max_size=3)).map(b"".join), cuts)
@example(HEAD.format("EXECVE").encode() + b"a0=" + b"=a" * 1000 + b'"' * 1001, WHOLE)
def test_any_bytes_give_records_or_are_counted(content, sizes):
    whole = read_records(records, content, WHOLE)
    assert read_records(records, content, sizes) == whole
    n_lines = sum(bool(line.strip()) for line in content.replace(b"\r\n", b"\n").split(b"\n"))
    found, reasons, _ = whole
    assert len(found) + sum(reasons.values()) <= n_lines
    recognises(content)


def test_a_long_word_takes_time_in_proportion():
    line = HEAD.format("CWD") + "x" * 4_000_000
    assert len(list(records(io.BytesIO(line.encode()), Skipped()))) == 1
