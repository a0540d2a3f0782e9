"""File systems that hold stored events, by the address of a file and the settings of Hadoop."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from pyarrow import fs

from cer_gpu.io.stores import Address, StoreError, azure_account, hdfs_node, open_store, s3_region
from spark_glue.files.stored_events import DirectReadError

_AMAZON = re.compile(r"s3(?:[.-]([a-z0-9-]+))?\.amazonaws\.com")
_TENANT = re.compile(r"https://[^/]+/([^/]+)/oauth2/")

RELEVANT = ("fs.", "google.", "dfs.", "hadoop.", "ipc.")
"""Prefixes of the settings of Hadoop that say how files are opened."""


def address_of(text: str) -> Address:
    """Return the parts of a path, or of a URI as Spark writes it; ``dbfs:`` is the folder /dbfs of this machine.

    Raises
    ------
    DirectReadError
        If there is no such folder.
    """
    address = Address.parse(text)
    if address.scheme != "dbfs":
        return address
    if not os.path.isdir("/dbfs"):
        raise DirectReadError(f"{text}: there is no folder /dbfs here, through which dbfs: could be read")
    return Address("file", "", "/dbfs" + address.path)


def store(address: Address, options: Mapping[str, str]) -> fs.FileSystem:
    """Return the file system of an address.

    Raises
    ------
    DirectReadError
        If neither pyarrow nor an installed fsspec can open it.
    """
    return _cached_store(address.scheme, address.authority, tuple(sorted(relevant(options).items())))


def relevant(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that say how files are opened; Spark's (``spark.hadoop.*``) by their own names."""
    relevant_settings = {}
    for name, value in options.items():
        name = name.removeprefix("spark.hadoop.")
        if name.startswith(RELEVANT):
            relevant_settings[name] = str(value)
    return relevant_settings


@functools.lru_cache(maxsize=64)
def _cached_store(scheme: str, authority: str, settings: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    options = dict(settings)
    arguments: dict[str, Callable[[], dict[str, Any]]] = {
        "S3FileSystem": lambda: _s3(authority, options),
        "GcsFileSystem": lambda: gcs_arguments(options),
        "AzureFileSystem": lambda: azure_arguments(authority, options),
        "HadoopFileSystem": lambda: hdfs_arguments(scheme, authority, options),
    }
    try:
        return open_store(Address(scheme, authority, ""), lambda kind: arguments[kind]())
    except StoreError as error:
        raise DirectReadError(str(error)) from error


def _s3(bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
    arguments = s3_arguments(bucket, options)
    return arguments if arguments.keys() & {"region", "endpoint_override"} else {**s3_region(bucket), **arguments}


def s3_arguments(bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyarrow.fs.S3FileSystem` for the settings ``fs.s3a.*`` of Hadoop.

    A setting of a bucket (``fs.s3a.bucket.NAME.*``) goes before the general one.  Without keys, pyarrow looks for
    credentials itself: in the environment, the files of AWS, and the machine's role.

    Raises
    ------
    DirectReadError
        If keys are to assume a role, which pyarrow cannot do.
    """

    def get(name: str) -> str | None:
        return options.get(f"fs.s3a.bucket.{bucket}.{name}") or options.get(f"fs.s3a.{name}") or None

    arguments: dict[str, Any] = {}
    key, secret, token = get("access.key"), get("secret.key"), get("session.token")
    role, provider = get("assumed.role.arn"), get("aws.credentials.provider") or ""
    if "Anonymous" in provider and not (key and secret):
        arguments["anonymous"] = True
    elif role is not None and "AssumedRole" in provider:
        if key or secret:
            raise DirectReadError(f"s3://{bucket}: pyarrow cannot assume the role {role} by keys")
        arguments["role_arn"] = role
        if (name := get("assumed.role.session.name")) is not None:
            arguments["session_name"] = name
    elif key and secret:
        arguments |= {"access_key": key, "secret_key": secret}
        if token:
            arguments["session_token"] = token
    if (region := get("endpoint.region")) is not None:
        arguments["region"] = region
    secure = (get("connection.ssl.enabled") or "true").lower() != "false"
    endpoint = get("endpoint")
    if endpoint is not None:
        scheme, separator, host = endpoint.rpartition("://")
        secure = scheme.lower() != "http" if separator else secure
        amazon = _AMAZON.fullmatch(host.rstrip("/"))
        if amazon is None:
            arguments["endpoint_override"] = host.rstrip("/")
            by_path = (get("path.style.access") or "false").lower() == "true"
            arguments["force_virtual_addressing"] = not by_path
        elif amazon[1] is not None:
            arguments.setdefault("region", amazon[1])
    if not secure:
        arguments["scheme"] = "http"
    return arguments


def gcs_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyarrow.fs.GcsFileSystem` for the settings ``fs.gs.*`` of Hadoop.

    Raises
    ------
    DirectReadError
        If they name a file of credentials other than that of the environment, which is all that pyarrow reads.
    """
    arguments: dict[str, Any] = {}
    if options.get("fs.gs.auth.type", "").upper() == "UNAUTHENTICATED":
        arguments["anonymous"] = True
    names = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
    keys = next((options[name] for name in names if options.get(name)), None)
    if keys is not None and os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") != keys:
        raise DirectReadError(
            f"gs: pyarrow takes no file of credentials from the settings, which name {keys}\n"
            f"hint: set GOOGLE_APPLICATION_CREDENTIALS={keys} for the driver and the workers"
        )
    if root := options.get("fs.gs.storage.root.url"):
        scheme, separator, host = root.rpartition("://")
        arguments |= {"endpoint_override": host.rstrip("/"), "scheme": scheme if separator else "https"}
    return arguments


def azure_arguments(authority: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyarrow.fs.AzureFileSystem` for the settings ``fs.azure.*`` of Hadoop.

    Parameters
    ----------
    authority
        ``container@account.dfs.core.windows.net``
    options

    Raises
    ------
    DirectReadError
        If the authority names no account.
    """
    try:
        arguments = azure_account(authority)
    except StoreError as error:
        raise DirectReadError(str(error)) from None
    container, _, host = authority.rpartition("@")

    def get(name: str) -> str | None:
        blob = host.replace(".dfs.", ".blob.")
        return next((options[n] for n in (f"{name}.{host}", f"{name}.{blob}", name) if options.get(n)), None)

    client, secret = get("fs.azure.account.oauth2.client.id"), get("fs.azure.account.oauth2.client.secret")
    tenant = _TENANT.match(get("fs.azure.account.oauth2.client.endpoint") or "")
    if (key := get("fs.azure.account.key")) is not None:
        arguments["account_key"] = key
    elif (token := get("fs.azure.sas.fixed.token") or get(f"fs.azure.sas.{container}")) is not None:
        arguments["sas_token"] = token
    elif client and secret and tenant is not None:
        arguments |= {"client_id": client, "client_secret": secret, "tenant_id": tenant[1]}
    return arguments


def hdfs_arguments(scheme: str, authority: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyarrow.fs.HadoopFileSystem`, with settings of Hadoop from the options of Spark."""
    arguments = hdfs_node(scheme, authority)
    if extra := {k: v for k, v in options.items() if k.startswith(("dfs.", "hadoop.", "ipc."))}:
        arguments["extra_conf"] = extra
    return arguments
