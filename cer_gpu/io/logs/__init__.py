"""Logs as their programs write them, as records: event logs of Windows, of the audit daemon, of Zeek, and others."""
