"""The archive of these packages that Spark ships to its workers."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from cer_gpu.backend.kernel_source import kernel_folder
from cer_gpu.cache import whole_file

PACKAGES = ("cer_gpu", "spark_glue")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Modification time of all files, so that the same files make the same archive."""


def package(path: str | os.PathLike[str] = "cer_gpu.zip") -> Path:
    """Write these packages as one archive, for ``spark-submit --py-files``.

    A running session takes the archive by ``spark.addArtifact("cer_gpu.zip", pyfile=True)``.

    The dependencies (NumPy, PyArrow, Numba, lark, click, rich) must be installed on the workers.

    Parameters
    ----------
    path
        The file to write; an existing one is replaced, and is whole at any time.

    Returns
    -------
    Path
        The given path.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    places = {**{name: files(name) for name in PACKAGES}, "cer_gpu/kernels": kernel_folder()}
    contents = {entry: file for name, folder in places.items() for entry, file in _package_files(folder, name)}
    with whole_file(path.absolute(), 0o644) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, source in contents.items():
            archive.writestr(zipfile.ZipInfo(entry, EPOCH), source.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def _package_files(folder: Traversable, place: str) -> Iterator[tuple[str, Traversable]]:
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        if path.is_dir():
            if path.name != "__pycache__":
                yield from _package_files(path, f"{place}/{path.name}")
        elif not path.name.endswith((".pyc", ".nbi", ".nbc")):
            yield f"{place}/{path.name}", path
