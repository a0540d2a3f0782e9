"""File systems that hold stored events, by the address of a file and the settings of Hadoop."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from pyarrow import fs

from spark_glue.files.found import NotByFilesError

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*|)", re.DOTALL)
_UNESCAPED = "/:@!$&'()*+,;=-._~"
_AMAZON = re.compile(r"s3(?:[.-]([a-z0-9-]+))?\.amazonaws\.com")
_TENANT = re.compile(r"https://[^/]+/([^/]+)/oauth2/")

RELEVANT = ("fs.", "google.", "dfs.", "hadoop.", "ipc.")
"""Prefixes of the settings of Hadoop that say how files are opened."""


@dataclass(frozen=True)
class Address:
    """Parts of a path or a URI.

    Attributes
    ----------
    scheme
        Such as "s3a"; empty: a path of this machine.
    authority
        Such as a bucket, or a host with its port.
    path
        Without the escapes of a URI.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def of(cls, text: str) -> Address:
        """Return the parts of a path, or of a URI, whose special characters are escaped (``%20``) as Spark does."""
        found = _URI.fullmatch(text)
        if found is None:
            return cls("", "", text)
        scheme, authority, path = found[1].lower(), found[2] or "", unquote(found[3])
        if scheme == "dbfs":
            if not os.path.isdir("/dbfs"):
                raise NotByFilesError(f"{text}: there is no folder /dbfs here, through which dbfs: could be read")
            return cls("file", "", "/dbfs" + path)
        return cls(scheme, authority, path)

    @property
    def uri(self) -> str:
        """The path, or the URI with its special characters escaped."""
        if not self.scheme:
            return self.path
        return f"{self.scheme}://{self.authority}{quote(self.path, safe=_UNESCAPED)}"

    @property
    def is_local(self) -> bool:
        """True if it is a file of this machine."""
        return self.scheme in ("", "file")


def store(address: Address, options: Mapping[str, str]) -> fs.FileSystem:
    """Return the file system of an address.

    Raises
    ------
    NotByFilesError
        If neither pyarrow nor an installed fsspec can open it.
    """
    return _store(address.scheme, address.authority, tuple(sorted(relevant(options).items())))


def relevant(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that say how files are opened; those of Spark (``spark.hadoop.*``) by their own names."""
    found = {}
    for name, value in options.items():
        name = name.removeprefix("spark.hadoop.")
        if name.startswith(RELEVANT):
            found[name] = str(value)
    return found


@functools.lru_cache(maxsize=64)
def _store(scheme: str, authority: str, settings: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    options = dict(settings)
    if scheme in ("", "file"):
        return fs.LocalFileSystem()
    known: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
        **dict.fromkeys(("s3", "s3a", "s3n"), ("S3FileSystem", lambda: _s3(authority, options))),
        **dict.fromkeys(("gs", "gcs"), ("GcsFileSystem", lambda: gcs_arguments(options))),
        **dict.fromkeys(("abfs", "abfss"), ("AzureFileSystem", lambda: azure_arguments(authority, options))),
        **dict.fromkeys(("hdfs", "viewfs"), ("HadoopFileSystem", lambda: hdfs_arguments(scheme, authority, options))),
    }
    missing = f"pyarrow has no file system for {scheme}:"
    if scheme in known:
        name, arguments = known[scheme]
        kind = getattr(fs, name, None)
        if kind is not None:
            try:
                return kind(**arguments())
            except (OSError, ValueError) as error:
                raise NotByFilesError(f"{scheme}://{authority}: pyarrow cannot open it: {error}") from error
        missing = f"this pyarrow was built without {name}"
    return _by_fsspec(f"{scheme}://{authority}/", missing)


def _by_fsspec(uri: str, missing: str) -> fs.FileSystem:
    """Return a file system of fsspec, which takes its settings from its own configuration and the environment."""
    try:
        import fsspec
    except ImportError:
        raise NotByFilesError(f"{uri}: {missing}, and fsspec is not installed") from None
    try:
        found, _ = fsspec.core.url_to_fs(uri)
    except (ImportError, OSError, ValueError) as error:
        raise NotByFilesError(f"{uri}: {missing}, and fsspec cannot open it: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(found))


def path_in_store(address: Address, own: fs.FileSystem) -> str:
    """Return the path of a file as its file system names it: with bucket or container, where there are any."""
    if isinstance(own, fs.PyFileSystem) and isinstance(own.handler, fs.FSSpecHandler) and address.scheme:
        named = own.handler.fs._strip_protocol(f"{address.scheme}://{address.authority}{address.path}")
        return str(named)
    if address.is_local or address.scheme in ("hdfs", "viewfs"):
        return address.path
    container = address.authority.split("@")[0] if address.scheme in ("abfs", "abfss") else address.authority
    return container + address.path


def _s3(bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
    arguments = s3_arguments(bucket, options)
    told = any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    if not told and "region" not in arguments and "endpoint_override" not in arguments:
        arguments["region"] = fs.resolve_s3_region(bucket)
    return arguments


def s3_arguments(bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyarrow.fs.S3FileSystem` for the settings ``fs.s3a.*`` of Hadoop.

    A setting of a bucket (``fs.s3a.bucket.NAME.*``) goes before the general one.  Without keys, pyarrow looks for
    credentials itself: in the environment, the files of AWS, and the machine's role.

    Raises
    ------
    NotByFilesError
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
            raise NotByFilesError(f"s3://{bucket}: pyarrow cannot assume the role {role} by keys")
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
    NotByFilesError
        If they name a file of credentials other than that of the environment, which is all that pyarrow reads.
    """
    arguments: dict[str, Any] = {}
    if options.get("fs.gs.auth.type", "").upper() == "UNAUTHENTICATED":
        arguments["anonymous"] = True
    names = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
    keys = next((options[name] for name in names if options.get(name)), None)
    if keys is not None and os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") != keys:
        raise NotByFilesError(
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
    NotByFilesError
        If the authority names no account.
    """
    container, _, host = authority.rpartition("@")
    if not container or "." not in host:
        raise NotByFilesError(f"abfss://{authority}: expected abfss://container@account.dfs.core.windows.net/...")
    account, suffix = host.split(".", 1)

    def get(name: str) -> str | None:
        blob = host.replace(".dfs.", ".blob.")
        return next((options[n] for n in (f"{name}.{host}", f"{name}.{blob}", name) if options.get(n)), None)

    arguments: dict[str, Any] = {"account_name": account}
    if suffix != "dfs.core.windows.net":
        arguments["dfs_storage_authority"] = "." + suffix
        arguments["blob_storage_authority"] = "." + suffix.replace("dfs.", "blob.", 1)
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
    """Return the arguments of `pyarrow.fs.HadoopFileSystem`: a name node, a name service, or the default one."""
    user, _, host = authority.rpartition("@")
    name, _, port = host.partition(":")
    if scheme == "viewfs":
        name, port = f"viewfs://{host}", ""
    arguments: dict[str, Any] = {"host": name or "default", "port": int(port) if port.isdigit() else 0}
    if user:
        arguments["user"] = user
    if extra := {k: v for k, v in options.items() if k.startswith(("dfs.", "hadoop.", "ipc."))}:
        arguments["extra_conf"] = extra
    return arguments
