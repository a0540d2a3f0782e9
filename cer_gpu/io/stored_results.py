"""Files of results in a store: gathered on this machine, and put there as a whole."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

from pyarrow import fs

from cer_gpu.errors import OptionError
from cer_gpu.io.stores import Address, open_store, path_in_store

_COPY_BYTES = 1 << 22
_WHOLE_AT_ONCE = ("s3", "gcs", "abfs")
"""File systems of pyarrow whose files can be seen only when they are closed."""


def is_stored(path: str) -> bool:
    """Return True for the address of a file in a store."""
    return "://" in path and not Address.of(path).is_local


@contextlib.contextmanager
def stored_result_file(path: str, inputs: Sequence[str] = ()) -> Iterator[IO[bytes]]:
    """Yield a temporary file that is put into a store at the end of the ``with`` block; after an error, nothing is.

    Parameters
    ----------
    path
        Address of the file in the store.
    inputs
        Files that are being read, which must not be overwritten.

    Raises
    ------
    OptionError
        When the path is an input.
    StoreError
        When the store cannot be opened.
    OSError
        When the file cannot be written.
    """
    if path in inputs:
        raise OptionError(f"{path}: is an input, and would be overwritten\nhint: write to another name")
    address = Address.of(path)
    store = open_store(address)
    place = path_in_store(address, store)
    with tempfile.TemporaryFile(prefix="cer_gpu-") as file:
        yield file
        file.seek(0)
        if store.type_name in _WHOLE_AT_ONCE:
            _copy(file, store, place)
            return
        folder, _, name = place.rpartition("/")
        part = f"{folder}/.cer-gpu-{secrets.token_hex(4)}-{name}.part"
        try:
            _copy(file, store, part)
            store.move(part, place)
        except BaseException:
            with contextlib.suppress(OSError):
                store.delete_file(part)
            raise


def _copy(file: IO[bytes], store: fs.FileSystem, place: str) -> None:
    with store.open_output_stream(place) as out:
        shutil.copyfileobj(file, out, _COPY_BYTES)
