"""Members of zip archives, which are read as the files of a folder."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from cer_gpu.errors import EventsError
from cer_gpu.io.containers.compression import too_much

ZIP_ENDING = ".zip"
_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_ENCRYPTED = 0x1


def is_zip(head: bytes) -> bool:
    """Return True if a file is a zip archive, by its first bytes."""
    return head.startswith(_MAGICS)


def member_names(file: Any, name: str, limit: int) -> list[str]:
    """Return the names of the files in an archive, without those of hidden ones and of folders.

    Parameters
    ----------
    file
        The archive, which can be read at any place.
    name
        Name of the archive, for messages.
    limit
        Most bytes of all members together; no member can have more than the archive says.

    Raises
    ------
    EventsError
        When it is no archive, or its members have more bytes.
    """
    with _reading(name), zipfile.ZipFile(file) as archive:
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
        When it is encrypted, is compressed in a way that Python does not know, or is damaged.
    """
    with _reading(name), zipfile.ZipFile(file) as archive:
        info = archive.getinfo(member)
        if info.flag_bits & _ENCRYPTED:
            raise EventsError(
                f"{name}: is encrypted\nhint: extract it (7z x ARCHIVE.zip, which asks for the password), "
                "and give the folder"
            )
        with archive.open(info) as opened:
            yield opened, info.file_size


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, NotImplementedError, KeyError, zlib.error) as error:
        raise EventsError(f"{name}: cannot be read as a zip archive: {error}") from error
