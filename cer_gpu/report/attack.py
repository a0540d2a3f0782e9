"""MITRE ATT&CK: its tactics in its order, and the addresses of its pages on tactics and techniques."""

from __future__ import annotations

import re

_SITE = "https://attack.mitre.org"
_TACTICS = {
    "Reconnaissance": "TA0043",
    "Resource Development": "TA0042",
    "Initial Access": "TA0001",
    "Execution": "TA0002",
    "Persistence": "TA0003",
    "Privilege Escalation": "TA0004",
    "Defense Evasion": "TA0005",  # until version 18
    "Stealth": "TA0005",
    "Defense Impairment": "TA0112",
    "Credential Access": "TA0006",
    "Discovery": "TA0007",
    "Lateral Movement": "TA0008",
    "Collection": "TA0009",
    "Command and Control": "TA0011",
    "Exfiltration": "TA0010",
    "Impact": "TA0040",
}
"""Ids of tactics by their names, in the order in which ATT&CK shows them."""
_TACTIC_ID = re.compile(r"TA\d{4}")
_TECHNIQUE_ID = re.compile(r"(T\d{4})(?:\.(\d{3}))?")


def place_of_tactic(tactic: str) -> tuple[int, str]:
    """Return the sort key of a tactic: those of ATT&CK in its order, others after them by name."""
    return (list(_TACTICS).index(tactic) if tactic in _TACTICS else len(_TACTICS)), tactic


def page_of_tactic(tactic: str) -> str | None:
    """Return the address of the page on a tactic, from its name or id; None: it is none of ATT&CK."""
    known = _TACTICS.get(tactic, tactic)
    return f"{_SITE}/tactics/{known}/" if _TACTIC_ID.fullmatch(known) else None


def page_of_technique(technique: str) -> str | None:
    """Return the address of the page on a technique, from its id; None: it is none of ATT&CK."""
    match = _TECHNIQUE_ID.fullmatch(technique)
    return None if match is None else "/".join([_SITE, "techniques", *filter(None, match.groups())]) + "/"
