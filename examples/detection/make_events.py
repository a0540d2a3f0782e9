"""Make windows.parquet: an evening of three made-up Windows machines, as tools that read event logs give it.

    python make_events.py [windows.parquet]

One row is one event of the logs "Security" and "Sysmon"; a column is a field of the event's data, NULL where the event
has no such field.  Most rows are ordinary work.  Between them, passwords are guessed on WS-12, a document on WS-07
starts PowerShell, which writes a program and runs it, and somebody on WS-07 packs files behind a password.
"""

import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

BEGIN = datetime(2024, 5, 14, 16, 0)
SYSMON, SECURITY = "Microsoft-Windows-Sysmon/Operational", "Security"
SYSTEM = "C:\\Windows\\System32\\"
POWERSHELL = SYSTEM + "WindowsPowerShell\\v1.0\\powershell.exe"
WORD = "C:\\Program Files\\Microsoft Office\\root\\Office16\\WINWORD.EXE"
DROPPED = "C:\\Users\\k.lund\\AppData\\Local\\Temp\\upd.exe"
USERS = {"WS-07": "OFFICE\\k.lund", "WS-12": "OFFICE\\j.berg", "DC-01": "OFFICE\\admin.t"}
PROGRAMS = [
    "C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe",
    "C:\\Program Files\\Microsoft Office\\root\\Office16\\OUTLOOK.EXE",
    WORD,
    "C:\\Users\\k.lund\\AppData\\Local\\Microsoft\\Teams\\Teams.exe",
    SYSTEM + "notepad.exe",
    SYSTEM + "svchost.exe",
    SYSTEM + "conhost.exe",
]
FIELDS = [
    "Image",
    "CommandLine",
    "ParentImage",
    "ProcessGuid",
    "ParentProcessGuid",
    "User",
    "TargetFilename",
    "TargetObject",
    "Details",
    "DestinationIp",
    "DestinationPort",
    "Protocol",
    "QueryName",
    "TargetUserName",
    "LogonType",
    "IpAddress",
]
SCHEMA = pa.schema(
    [
        ("TimeCreated", pa.timestamp("us")),
        ("Computer", pa.string()),
        ("Channel", pa.string()),
        ("EventID", pa.int64()),
        *((name, pa.string()) for name in FIELDS),
    ]
)


class Evening:
    """Events of an evening."""

    def __init__(self, seed: int) -> None:
        self.rows: list[dict[str, object]] = []
        self._random = random.Random(seed)
        self._n_processes = 0

    def add(self, seconds: float, computer: str, event: int, **fields: object) -> None:
        """Add an event, so many seconds after the begin."""
        channel = SECURITY if event >= 4000 else SYSMON
        time = BEGIN + timedelta(seconds=seconds)
        self.rows.append({"TimeCreated": time, "Computer": computer, "Channel": channel, "EventID": event, **fields})

    def started(
        self,
        seconds: float,
        computer: str,
        image: str,
        command: str,
        parent: tuple[str, str] = (SYSTEM + "explorer.exe", "{0}"),
    ) -> tuple[str, str]:
        """Add the start of a process by a parent, and return its image and guid."""
        self._n_processes += 1
        guid = f"{{{computer}-{self._n_processes:04}}}"
        self.add(
            seconds,
            computer,
            1,
            Image=image,
            CommandLine=command,
            ParentImage=parent[0],
            ProcessGuid=guid,
            ParentProcessGuid=parent[1],
            User=USERS[computer],
        )
        return image, guid

    def ordinary_work(self, n: int) -> None:
        """Add events of ordinary work: programs that start, look up names, connect, write files and end."""
        for _ in range(n):
            seconds, computer = self._random.uniform(0, 10_800), self._random.choice(list(USERS))
            image = self._random.choice(PROGRAMS)
            process = self.started(seconds, computer, image, f'"{image}"')
            own = {"Image": image, "ProcessGuid": process[1], "User": USERS[computer]}
            kind = self._random.randrange(4)
            if kind == 0:
                self.add(
                    seconds + 1, computer, 22, **own, QueryName=self._random.choice(["mail.example", "cdn.example"])
                )
                self.add(
                    seconds + 2,
                    computer,
                    3,
                    **own,
                    DestinationIp=f"198.51.100.{self._random.randrange(1, 250)}",
                    DestinationPort="443",
                    Protocol="tcp",
                )
            elif kind == 1:
                name = f"C:\\Users\\Public\\Documents\\note{self._random.randrange(99)}.docx"
                self.add(seconds + 3, computer, 11, **own, TargetFilename=name)
            elif kind == 2:
                self.logon(seconds, computer, 4624, USERS[computer].split("\\")[1], "2", "-")
            self.add(seconds + self._random.uniform(5, 900), computer, 5, **own)

    def logon(self, seconds: float, computer: str, event: int, user: str, kind: str, address: str) -> None:
        """Add a logon (4624), or one that failed (4625)."""
        self.add(seconds, computer, event, TargetUserName=user, LogonType=kind, IpAddress=address)

    def guessed_passwords(self) -> None:
        """Add eight failed logons from one address and a successful one; and two mistyped passwords."""
        for i in range(8):
            self.logon(4_000 + 6 * i, "WS-12", 4625, "j.berg", "3", "10.0.4.77")
        self.logon(4_050, "WS-12", 4624, "j.berg", "3", "10.0.4.77")
        for i in range(2):
            self.logon(900 + 20 * i, "DC-01", 4625, "admin.t", "2", "10.0.4.10")
        self.logon(950, "DC-01", 4624, "admin.t", "2", "10.0.4.10")

    def opened_document(self) -> None:
        """Add a document that starts PowerShell, the program that this writes, and what the program does."""
        word = self.started(5_400, "WS-07", WORD, f'"{WORD}" "C:\\Users\\k.lund\\Downloads\\invoice.docm"')
        shell = self.started(5_412, "WS-07", POWERSHELL, "powershell.exe -nop -w hidden -enc SQBFAFgA", word)
        own = {"Image": POWERSHELL, "ProcessGuid": shell[1], "User": USERS["WS-07"]}
        self.add(5_414, "WS-07", 22, **own, QueryName="files.invalid")
        self.add(5_415, "WS-07", 3, **own, DestinationIp="203.0.113.50", DestinationPort="443", Protocol="tcp")
        self.add(5_420, "WS-07", 11, **own, TargetFilename=DROPPED)
        program = self.started(5_431, "WS-07", DROPPED, f'"{DROPPED}" /q', shell)
        own = {"Image": DROPPED, "ProcessGuid": program[1], "User": USERS["WS-07"]}
        run = "HKU\\S-1-5-21-7\\SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\Run\\Updater"
        self.add(5_440, "WS-07", 13, **own, TargetObject=run, Details=DROPPED)
        self.add(5_441, "WS-07", 3, **own, DestinationIp="203.0.113.50", DestinationPort="8443", Protocol="tcp")
        for i, words in enumerate(['group "Domain Admins" /domain', "view /domain", "user /domain"]):
            self.started(5_500 + 15 * i, "WS-07", SYSTEM + "net.exe", f"net.exe {words}", program)

    def packed_files(self) -> None:
        """Add files that are packed behind a password, and that go nowhere."""
        packer = "C:\\Program Files\\7-Zip\\7z.exe"
        for i in range(2):
            command = f"7z.exe a -pS3cret C:\\Users\\Public\\d{i}.7z C:\\Shares\\projects"
            self.started(7_200 + 240 * i, "WS-07", packer, command)

    def table(self) -> pa.Table:
        """Return the events in the order of time."""
        return pa.Table.from_pylist(self.rows, SCHEMA).sort_by("TimeCreated")


def main(path: str = str(Path(__file__).with_name("windows.parquet"))) -> None:
    """Write the file."""
    evening = Evening(seed=7)
    evening.ordinary_work(120)
    evening.guessed_passwords()
    evening.opened_document()
    evening.packed_files()
    pq.write_table(evening.table(), path, compression="zstd")


if __name__ == "__main__":
    main(*sys.argv[1:])
