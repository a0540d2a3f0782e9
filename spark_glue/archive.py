"""The archive of these packages that Spark ships to its workers.

Each worker imports the packages from it.  Python writes no bytecode into archives, and to compile all modules takes
five seconds of a core; so bytecode for this version of Python comes along, and another version compiles the sources.
"""

from __future__ import annotations

import marshal
import os
import zipfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import CodeType

from cer_gpu.backend.kernel_source import kernel_folder
from cer_gpu.cache import whole_file

PACKAGES = ("cer_gpu", "spark_glue")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Modification time of all files, so that the same files make the same archive."""
_UNCHECKED = (1).to_bytes(4, "little")
"""Flags of bytecode that is identified by the hash of its source, and used without looking at the source (PEP 552)."""
_WITHOUT_REFERENCES = 2
"""Version of marshal that does not write how many references there are, which differs from run to run."""


def package(path: str | os.PathLike[str] = "cer_gpu.zip") -> Path:
    """Write these packages as one archive, for ``spark-submit --py-files``.

    A running session takes the archive by ``spark.addArtifact("cer_gpu.zip", pyfile=True)``.

    The dependencies (`pip install cer-gpu` has them) must be installed on the workers.  Workers with this version of
    Python start fastest, as the archive has bytecode for it.  If this is the wheel with machine code, the archive has
    that, too.

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
            content = source.read_bytes()
            archive.writestr(zipfile.ZipInfo(entry, EPOCH), content, zipfile.ZIP_DEFLATED)
            if entry.endswith(".py"):
                bytecode = _bytecode(entry, source, content)
                archive.writestr(zipfile.ZipInfo(f"{entry}c", EPOCH), bytecode, zipfile.ZIP_DEFLATED)
    return path


def _bytecode(entry: str, source: Traversable, content: bytes) -> bytes:
    """Return the file of bytecode of a module; what Python has cached of it is not compiled again."""
    if isinstance(source, Path):
        code = SourceFileLoader(entry, str(source)).get_code(entry)
    else:
        code = compile(content, entry, "exec", dont_inherit=True)
    assert code is not None
    # no such file is on a worker, where Numba would take it for the source of kernels
    data = marshal.dumps(_renamed(code, f"cer_gpu.zip/{entry}"), _WITHOUT_REFERENCES)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(content) + data


def _renamed(code: CodeType, path: str) -> CodeType:
    constants = tuple(_renamed(each, path) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=path, co_consts=constants)


def _package_files(folder: Traversable, place: str) -> Iterator[tuple[str, Traversable]]:
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        if path.is_dir():
            if path.name != "__pycache__":
                yield from _package_files(path, f"{place}/{path.name}")
        elif not path.name.endswith((".pyc", ".nbi", ".nbc")):
            yield f"{place}/{path.name}", path
