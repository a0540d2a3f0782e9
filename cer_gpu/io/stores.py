"""File systems of stored events by URI or path, and the files of a folder or a glob."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import fs

from cer_gpu.errors import EventsError
from cer_gpu.io.compression import (
    MAGIC_BYTES,
    MAX_DECOMPRESSED,
    codec_of,
    decompressed,
    is_zip,
    member_names,
    opened_member,
    too_much,
)
from cer_gpu.io.folders import Entry, entries, entry_at
from cer_gpu.printable import printable


def native_path(path: str | os.PathLike[str]) -> str | bytes:
    """Return a path that pyarrow takes: as bytes if it is not UTF-8."""
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def open_local(path: str | os.PathLike[str], mode: str = "rb") -> pa.OSFile:
    """Open a file of this machine as pyarrow does.

    It is not memory-mapped: truncating a mapped file would kill the process with SIGBUS.
    """
    return pa.OSFile(native_path(path), mode)


def map_local(path: str | os.PathLike[str]) -> pa.MemoryMappedFile:
    """Memory-map a file of this machine that nobody else can truncate."""
    return pa.memory_map(native_path(path))


_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*|)", re.DOTALL)
_UNESCAPED = "/:@!$&'()*+,;=-._~"
_GLOB = re.compile(r"[*?\[{]")
_BRACKET = re.compile(r"\[([!^]?)(\][^]]*|[^]]+)\]")
_TABLES = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_KINDS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "S3FileSystem"),
    **dict.fromkeys(("gs", "gcs"), "GcsFileSystem"),
    **dict.fromkeys(("abfs", "abfss"), "AzureFileSystem"),
    **dict.fromkeys(("hdfs", "viewfs"), "HadoopFileSystem"),
}
"""Classes of `pyarrow.fs` by URI scheme."""
_CREDENTIALS = {
    "S3FileSystem": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role of the machine",
    "GcsFileSystem": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "AzureFileSystem": "`az login`, or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
}
_MEMBER_BYTES = 1 << 26
"""Maximum size of a member of an archive that is decompressed in memory."""
_COPIED_BYTES = 1 << 20
_DESCRIPTORS = "/dev/fd"
"""Folder of the open file descriptors of this process, if the system has one."""


class StoreError(EventsError):
    """Address whose file system cannot be opened here."""


@dataclass(frozen=True)
class Address:
    """Parts of a path or a URI.

    Attributes
    ----------
    scheme
        Such as "s3a"; empty for a path of this machine.
    authority
        Such as a bucket, or a host with its port.
    path
        Unescaped.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the parts of a path, or of a URI, whose special characters are escaped (``%20``)."""
        parts = _URI.fullmatch(text)
        if parts is None:
            return cls("", "", text)
        scheme = parts[1].lower()
        errors = "surrogateescape" if scheme == "file" else "replace"  # names of this machine are bytes
        return cls(scheme, parts[2] or "", unquote(parts[3], errors=errors))

    @property
    def uri(self) -> str:
        """The path, or the URI with its special characters escaped."""
        if not self.scheme:
            return self.path
        return f"{self.scheme}://{self.authority}{quote(self.path, safe=_UNESCAPED, errors='surrogateescape')}"

    @property
    def is_local(self) -> bool:
        """True if it is a file of this machine."""
        return self.scheme in ("", "file")

    @property
    def credentials_hint(self) -> str | None:
        """A hint on the credentials of the store, or None if it needs none."""
        credentials = _CREDENTIALS.get(_KINDS.get(self.scheme, ""))
        if credentials is None:
            return None
        return f"credentials are those of {credentials}; others: give a pyarrow.dataset with a filesystem of its own"


@dataclass(frozen=True)
class StoredFile:
    """A file in a store.

    Attributes
    ----------
    path
        Path in its store.
    shown
        Path or URI for messages.
    store
        The file system, or None for this machine.
    folders
        Hive columns in the path, such as ``year=2024``, as strings.
    member
        Name within the zip archive at `path`, or None for the file itself.
    max_bytes
        Maximum size after decompression.
    """

    path: str
    shown: str
    store: fs.FileSystem | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    member: str | None = None
    max_bytes: int = MAX_DECOMPRESSED

    def __str__(self) -> str:
        """Return the path or URI for messages."""
        return printable(self.shown)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return (self.member or self.path).rsplit("/", 1)[-1]

    @property
    def place(self) -> str:
        """The path in its store, followed by the path within an archive."""
        return self.path if self.member is None else f"{self.path}/{self.member}"

    def open(self) -> pa.NativeFile:
        """Open the file as it is stored, seekable."""
        return self._open_native() if self.member is None else self._open_member()

    def _open_native(self) -> pa.NativeFile:
        return open_local(self.path) if self.store is None else self.store.open_input_file(self.path)

    def _open_member(self) -> pa.NativeFile:
        """Open a member of an archive: a small one in memory, others in an anonymous file."""
        assert self.member is not None
        with self._open_native() as archive, opened_member(archive, self.member, str(self)) as (member, n_bytes):
            if n_bytes > self.max_bytes:
                raise too_much(str(self), self.max_bytes)
            if n_bytes <= _MEMBER_BYTES or not os.path.isdir(_DESCRIPTORS):
                return pa.BufferReader(member.read())
            with tempfile.TemporaryFile(prefix="cer_gpu-") as file:
                shutil.copyfileobj(member, file, _COPIED_BYTES)
                file.flush()
                file.seek(0)
                return open_local(f"{_DESCRIPTORS}/{file.fileno()}")  # so Arrow's threads hold no Python object

    def stream(self) -> pa.NativeFile:
        """Open the file for sequential reading, decompressed as its first bytes indicate."""
        file = self.open()
        try:
            codec = codec_of(_read_head(file, MAGIC_BYTES), self.name)
            if self.store is not None and self.member is None:  # fewer and larger reads than a seekable file
                file.close()
                file = self.store.open_input_stream(self.path, compression=None)
            return file if codec is None else decompressed(file, codec, str(self), self.max_bytes)
        except BaseException:
            file.close()
            raise

    def head(self, n_bytes: int) -> bytes:
        """Return the first decompressed bytes."""
        with self.stream() as stream:
            return bytes(stream.read(n_bytes))

    def is_archive(self) -> bool:
        """Return True if the first bytes are those of a zip archive."""
        if self.member is not None:
            return False
        with self._open_native() as file:
            return is_zip(_read_head(file, MAGIC_BYTES))

    def members(self) -> list[str]:
        """Return the names of the files in a zip archive."""
        with self._open_native() as file:
            return member_names(file, str(self), self.max_bytes)


def _read_head(file: pa.NativeFile, n_bytes: int) -> bytes:
    """Return the first bytes of a seekable file."""
    data = bytes(file.read(n_bytes))
    file.seek(0)
    return data


def open_store(address: Address, arguments: Callable[[str], Mapping[str, Any]] | None = None) -> fs.FileSystem:
    """Return the file system of a URI: pyarrow's, or one of fsspec if it is installed.

    Parameters
    ----------
    address
    arguments
        Returns the arguments for a class of `pyarrow.fs` by its name; by default (None) those in the URI.  pyarrow
        itself looks up credentials: in the environment, the files of the store's own tools, the machine's role.

    Raises
    ------
    StoreError
        If neither pyarrow nor an installed fsspec can open it.
    """
    scheme, authority = address.scheme, address.authority
    if address.is_local:
        return fs.LocalFileSystem()
    missing = f"pyarrow has no file system for {scheme}:"
    if scheme in _KINDS:
        kind = getattr(fs, _KINDS[scheme], None)
        if kind is not None:
            try:
                return kind(**(_store_arguments(address) if arguments is None else arguments(_KINDS[scheme])))
            except (OSError, ValueError) as error:
                hint = f"\nhint: {address.credentials_hint}" if address.credentials_hint else ""
                raise StoreError(f"{scheme}://{authority}: pyarrow cannot open it: {error}{hint}") from error
        missing = f"this pyarrow was built without {_KINDS[scheme]}"
    return _by_fsspec(f"{scheme}://{authority}/", missing)


def _store_arguments(address: Address) -> Mapping[str, Any]:
    """Return the arguments that a URI contains."""
    kind = _KINDS[address.scheme]
    if kind == "S3FileSystem":
        endpoint = s3_endpoint()
        return s3_region(address.authority) | ({"endpoint_override": endpoint} if endpoint else {})
    if kind == "AzureFileSystem":
        return azure_account(address.authority)
    return hdfs_node(address.scheme, address.authority) if kind == "HadoopFileSystem" else {}


def s3_endpoint() -> str | None:
    """Return the S3 endpoint from the environment, which pyarrow ignores, or None."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def s3_region(bucket: str) -> dict[str, Any]:
    """Return the region of a bucket as an argument of `pyarrow.fs.S3FileSystem`, unless the environment sets one."""
    is_configured = any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"))
    return {} if is_configured else {"region": fs.resolve_s3_region(bucket)}


def azure_account(authority: str) -> dict[str, Any]:
    """Return the account of ``container@account.dfs.core.windows.net`` as arguments of `pyarrow.fs.AzureFileSystem`.

    Raises
    ------
    StoreError
        If the authority names no account.
    """
    container, _, host = authority.rpartition("@")
    if not container or "." not in host:
        raise StoreError(f"abfss://{authority}: expected abfss://container@account.dfs.core.windows.net/...")
    account, suffix = host.split(".", 1)
    arguments: dict[str, Any] = {"account_name": account}
    if suffix != "dfs.core.windows.net":
        arguments["dfs_storage_authority"] = "." + suffix
        arguments["blob_storage_authority"] = "." + suffix.replace("dfs.", "blob.", 1)
    return arguments


def hdfs_node(scheme: str, authority: str) -> dict[str, Any]:
    """Return the arguments of `pyarrow.fs.HadoopFileSystem`: a name node, a name service, or the default one."""
    user, _, host = authority.rpartition("@")
    name, _, port = host.partition(":")
    if scheme == "viewfs":
        name, port = f"viewfs://{host}", ""
    arguments: dict[str, Any] = {"host": name or "default", "port": int(port) if port.isdigit() else 0}
    return {**arguments, "user": user} if user else arguments


def _by_fsspec(uri: str, missing: str) -> fs.FileSystem:
    """Return a file system of fsspec, which takes its settings from its own configuration and the environment."""
    try:
        import fsspec
    except ImportError:
        raise StoreError(f"{uri}: {missing}, and fsspec is not installed") from None
    try:
        filesystem, _ = fsspec.core.url_to_fs(uri)
    except (ImportError, OSError, ValueError) as error:
        raise StoreError(f"{uri}: {missing}, and fsspec cannot open it: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem))


def path_in_store(address: Address, own: fs.FileSystem) -> str:
    """Return the path of a file in its file system: with bucket or container, if there is one."""
    if isinstance(own, fs.PyFileSystem) and isinstance(own.handler, fs.FSSpecHandler) and address.scheme:
        named = own.handler.fs._strip_protocol(f"{address.scheme}://{address.authority}{address.path}")
        return str(named)
    if address.is_local or address.scheme in ("hdfs", "viewfs"):
        return address.path
    container = address.authority.split("@")[0] if address.scheme in ("abfs", "abfss") else address.authority
    return container + address.path


def uri_in_store(address: Address, place: str, path: str) -> str:
    """Return the URI of a file in the store of `address`, or its path on this machine.

    Parameters
    ----------
    address
    place
        Path of the address in its store.
    path
        Path of the file in the store.
    """
    bucket = place.rstrip("/").removesuffix(address.path.rstrip("/")).strip("/")
    return replace(address, path=path.strip("/").removeprefix(bucket) if bucket else path).uri


# ---- folders and globs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoreListing:
    """Files of a folder or a glob.

    Attributes
    ----------
    base
        The folder; of a glob, the one before its first special character.
    files
        Paths in the store, and the parts of each path below the base; without hidden ones (``.x``, ``_x``, but with
        ``_column=value``).  Broken links are included: opening one is an error.
    table
        Table format that determines which files have rows, such as "Delta", or None if the folder is not a table.
    """

    base: str
    files: list[tuple[str, list[str]]]
    table: str | None


def listing(store: fs.FileSystem, place: str) -> StoreListing | None:
    """Return the files of a folder and its subfolders, or of a glob, or None if the path is one file.

    Globs may contain ``*``, ``**``, ``?``, ``[abc]`` and ``{a,b}``; a folder that matches represents its files.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder, and the path is not a glob.
    OSError
        If the store cannot be read.
    """
    kind = entry_at(store, place).type
    if kind == fs.FileType.File:
        return None
    base, wanted = place, None
    below = True  # list subfolders, too
    if kind != fs.FileType.Directory:
        special = _GLOB.search(place)
        if special is None:
            raise FileNotFoundError(place)
        slash = place.rfind("/", 0, special.start())
        base, wanted = (place[: max(slash, slash == 0)] if slash >= 0 else ""), re.compile(_regex_of_glob(place))
        below = "/" in place[slash + 1 :] or "**" in place
    # a relative glob does not name the current folder
    own = isinstance(store, fs.LocalFileSystem) and not base

    def path_of(info: Entry) -> str:
        return os.path.relpath(info.path) if own else info.path

    infos = entries(store, "." if own else base, below=below)
    if wanted is not None and not below:  # all files of matching folders
        named = [info.path for info in infos if info.type == fs.FileType.Directory and wanted.match(path_of(info))]
        infos += [info for path in named for info in entries(store, path, below=True)]
    files, table = [], None
    for info in infos:
        path = path_of(info)
        names = path.removeprefix(base).strip("/").split("/")
        table = table or next((_TABLES[name] for name in names if name in _TABLES), None)
        if table is None and names[-1].endswith(".metadata.json") and "metadata" in names[:-1]:
            table = "Iceberg"
        if wanted is not None and not wanted.match(path):
            continue
        if info.type in (fs.FileType.File, fs.FileType.NotFound) and not any(map(_hidden, names)):
            files.append((path, names))
    return StoreListing(base, files, table)


def _hidden(name: str) -> bool:
    """Return True for names of hidden or metadata files and folders."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _regex_of_glob(glob: str) -> str:
    """Return a regular expression for the paths that match a glob, and for paths below them."""
    regex, depth, i = "", 0, 0
    while i < len(glob):
        char = glob[i]
        bracket = _BRACKET.match(glob, i)
        if glob.startswith("**/", i):
            regex, i = regex + "(?:[^/]+/)*", i + 2
        elif glob.startswith("**", i):
            regex, i = regex + ".*", i + 1
        elif char in "*?":
            regex += "[^/]*" if char == "*" else "[^/]"
        elif bracket:
            # without the flags and the end of the pattern
            inside = fnmatch.translate("[" + ("!" if bracket[1] else "") + bracket[2] + "]")[len("(?s:") : -len(r")\Z")]
            regex, i = regex + "(?!/)" + inside, bracket.end() - 1
        elif char == "{" and glob.count("}", i) > depth:
            regex, depth = regex + "(?:", depth + 1
        elif char in ",}" and depth:
            regex, depth = regex + ("|" if char == "," else ")"), depth - (char == "}")
        else:
            regex += re.escape(char)
        i += 1
    return regex.rstrip("/") + ")" * depth + r"(?:/.*)?\Z"
