"""Lock of the folder of a state, which ends with the process that has it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cer_gpu.errors import OptionError
from cer_gpu.private_files import open_to_append


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder during the block.

    Raises
    ------
    OptionError
        When another process has it.
    """
    with open_to_append(folder / "lock") as file:
        try:
            _lock(file)
        except OSError:
            raise OptionError(
                f"{folder}: another process writes these results\nhint: stop it first, or write to another place"
            ) from None
        yield


def _lock(file: Any) -> None:
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:  # Windows
        windows = importlib.import_module("msvcrt")
        file.seek(0)
        windows.locking(file.fileno(), windows.LK_NBLCK, 1)
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
