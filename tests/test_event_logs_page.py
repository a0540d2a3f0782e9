"""The commands of docs/guides/event_logs.md work, over event logs and rules made for them."""

import re
import shlex
from pathlib import Path

import pytest
from evtx_writer import event_xml, evtx_bytes
from test_house import ROOT

from cer_gpu.cli import main

PAGE = (ROOT / "docs" / "guides" / "event_logs.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
OWN = [line for line in COMMANDS if line.startswith("cer-gpu ")]
RULE = """title: Whoami
id: 0e95725d-7320-415d-80f7-004da920fc11
level: high
tags: [attack.discovery]
logsource: {product: windows, category: process_creation}
detection: {selection: {Image|endswith: '\\whoami.exe'}, condition: selection}
"""


def test_the_page_begins_with_an_installation_and_has_seven_commands():
    assert [line.split()[0] for line in COMMANDS[:2]] == ["pip", "git"]
    assert len(OWN) == 7


@pytest.mark.parametrize("command", OWN)
def test_each_command_finds_the_alert(command, tmp_path, monkeypatch, capsys):
    pytest.importorskip("evtx")
    pytest.importorskip("sigma")
    monkeypatch.chdir(tmp_path)
    rules = Path("sigma/rules/windows")
    rules.mkdir(parents=True)
    (rules / "whoami.yml").write_text(RULE, encoding="utf-8")
    system = "<EventID>1</EventID><Channel>Microsoft-Windows-Sysmon/Operational</Channel><Computer>pc</Computer>"
    data = "<EventData><Data Name='Image'>C:\\{}.exe</Data></EventData>"
    events = [("whoami", "2025-10-24T12:00:00.5Z"), ("net", "2025-10-24T12:01:00Z")]
    Path("logs").mkdir()
    Path("logs", "Sysmon.evtx").write_bytes(
        evtx_bytes([event_xml(system, data.format(image), at=at) for image, at in events])
    )
    assert main(shlex.split(command)[1:]) == 0
    told = "".join(capsys.readouterr())
    assert ("1 alert" if "--queries" in command else "1 match") in told
    if "-o" in command:
        out = Path(command.split()[-1])
        assert out.stat().st_size > 0
        assert b"Whoami" in out.read_bytes()
