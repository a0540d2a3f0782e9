"""Compression detected by the first bytes, zip archives read as folders, and a limit on decompressed bytes."""

from __future__ import annotations

import contextlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa

from cer_gpu.columnar.memory_limit import shown_size
from cer_gpu.errors import EventsError

MAX_DECOMPRESSED = 1 << 36
"""Default maximum size of a file after decompression: 64 GiB."""
MAGIC_BYTES = 6
"""Number of bytes at the beginning of a file that identify its compression."""
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Codecs of Arrow by the endings of names."""
_MAGICS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_NO_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\v"))


def named_codec(name: str) -> str | None:
    """Return the codec of the ending of a name, in lower case, or None if it has no such ending."""
    return next((codec for ending, codec in COMPRESSIONS.items() if name.endswith(ending)), None)


def codec_of(head: bytes, name: str) -> str | None:
    """Return the codec of a file, or None if it is not compressed.

    Parameters
    ----------
    head
        Its first `MAGIC_BYTES`, or fewer.
    name
        Its ending counts only if the content is neither compressed nor text.
    """
    codec_by_content = next((codec for magic, codec in _MAGICS.items() if head.startswith(magic)), None)
    if codec_by_content is None and head.translate(None, _NO_TEXT) != head:
        return named_codec(name.lower())
    return codec_by_content


def decompressed(raw: Any, codec: str, name: str, limit: int) -> Any:
    """Return the decompressed bytes of a file as a file of Arrow; `limit` is their maximum number.

    Parameters
    ----------
    raw
        The compressed bytes.
    codec
        Name of a codec of Arrow.
    name
        Name of the file, for messages.
    limit
    """
    return _DecompressedStream(raw, codec, name, limit)


def check_size(stream: Any, n_bytes: int) -> None:
    """Raise EventsError if Arrow has read more bytes of a decompressed stream than its limit."""
    if isinstance(stream, _DecompressedStream):
        stream.check(n_bytes)


class _DecompressedStream(pa.CompressedInputStream):  # type: ignore[misc]
    """Decompressed bytes of a file, up to a limit."""

    def __init__(self, raw: Any, codec: str, name: str, limit: int) -> None:
        super().__init__(raw, codec)
        self._name, self._limit = name, limit
        self._n_bytes = 0

    def read(self, nbytes: int | None = None) -> bytes:
        """Return the next bytes.

        Raises
        ------
        EventsError
            When there are more than the limit.
        """
        data: bytes = super().read(nbytes)
        self._n_bytes += len(data)
        self.check(self._n_bytes)
        return data

    def check(self, n_bytes: int) -> None:
        """Raise EventsError if more bytes were read than the limit."""
        if n_bytes > self._limit:
            raise too_much(self._name, self._limit)


def too_much(name: str, limit: int) -> EventsError:
    """Return the error for a file that exceeds the limit after decompression."""
    return EventsError(
        f"{name}: has more than max_decompressed ({shown_size(limit)}) after its decompression\n"
        "hint: a larger limit, if the file is no decompression bomb: max_decompressed='1 TB' (--max-decompressed)"
    )


class RawStream(io.RawIOBase):
    """Bytes of a file of Arrow as a raw stream, for `io.BufferedReader`, which reads lines."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer, and return their number."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the stream and the file."""
        if not self.closed:
            self._stream.close()
        super().close()


ZIP_ENDING = ".zip"
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_ENCRYPTED = 0x1


def is_zip(head: bytes) -> bool:
    """Return True if a file is a zip archive, by its first bytes."""
    return head.startswith(_ZIP_MAGICS)


def member_names(file: Any, name: str, limit: int) -> list[str]:
    """Return the names of the files in an archive, without folders.

    Parameters
    ----------
    file
        The archive, which must be seekable.
    name
        Name of the archive, for messages.
    limit
        Maximum size of all members together; no member can be larger than the archive says.

    Raises
    ------
    EventsError
        When it is not an archive, or its members are larger.
    """
    with _naming_archive(name), zipfile.ZipFile(file) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
    if sum(info.file_size for info in infos) > limit:
        raise too_much(name, limit)
    return [info.filename for info in infos if info.filename.strip("/")]


@contextlib.contextmanager
def opened_member(file: Any, member: str, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """Yield a member of an archive, decompressed, and its size.

    Raises
    ------
    EventsError
        When it is encrypted, has an unsupported compression, or is damaged.
    """
    with _naming_archive(name), zipfile.ZipFile(file) as archive:
        info = archive.getinfo(member)
        if info.flag_bits & _ENCRYPTED:
            raise EventsError(
                f"{name}: is encrypted\nhint: extract it (7z x ARCHIVE.zip, which asks for the password), "
                "and give the folder"
            )
        with archive.open(info) as opened:
            yield opened, info.file_size


@contextlib.contextmanager
def _naming_archive(name: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, NotImplementedError, KeyError, zlib.error) as error:
        raise EventsError(f"{name}: cannot be read as a zip archive: {error}") from error
