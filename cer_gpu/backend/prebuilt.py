"""Machine code of kernels that comes with a package, so that a first run compiles next to nothing.

A wheel for a platform holds a folder `prebuilt`, made where the wheel was built from what Numba cached on disk of the
usual kinds of queries (`write_folder`).  It serves every processor with the features of `TARGET_CPU`, if sources and
the versions of Python, Numba and LLVM are the same; all other kernels, and all kernels elsewhere, are compiled as ever.
Files of the folder are checked by their digests before they are loaded, and one that is damaged is not used.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import llvmlite
import numba

TARGET_CPU = "x86-64-v3"
"""Target processor of the code, by LLVM's name."""

FEATURES = (
    "64bit", "avx", "avx2", "bmi", "bmi2", "cmov", "crc32", "cx16", "cx8", "f16c", "fma", "fxsr", "lzcnt", "mmx",
    "movbe", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
)  # fmt: skip
"""Features of `TARGET_CPU`, by LLVM's names; the code uses no others."""

ENVIRONMENT = {
    "NUMBA_CPU_NAME": TARGET_CPU,
    "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in FEATURES),
    "NUMBA_DISABLE_INTEL_SVML": "1",  # a library that other machines may lack
}
"""Environment of a process that makes the code."""

FOLDER = files("cer_gpu") / "prebuilt"
"""Folder of the machine code, which may be inside an archive that Spark ships."""
_MANIFEST = "manifest.json"
_SETTINGS: Any = numba.config  # its stubs do not know all of them


def about(stamp: str) -> dict[str, str]:
    """Return what the code depends on besides the processor, from the digest of the sources."""
    return {
        "sources": stamp,
        "python": EXTENSION_SUFFIXES[0],
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
    }


class Prebuilt:
    """The folder of an installed package, or none.

    Parameters
    ----------
    folder
    stamp
        Digest of the sources.
    """

    def __init__(self, folder: Traversable, stamp: str) -> None:
        self._folder = folder
        self._stamp = stamp

    @functools.cached_property
    def _digests(self) -> Mapping[str, str]:
        """Digests of the files by their names; empty if the code is not for these sources and versions."""
        try:
            manifest = json.loads((self._folder / _MANIFEST).read_text(encoding="utf-8"))
            same = all(manifest["about"].get(name) == value for name, value in about(self._stamp).items())
            return dict(manifest["files"]) if same else {}
        except (OSError, ValueError, LookupError, AttributeError, TypeError):
            return {}

    def load(self, name: str, key: Any) -> Any:
        """Return what Numba stores of a kernel, or None if nothing is for this processor and these types of arguments.

        Parameters
        ----------
        name
            Name of the kernel's files in Numba's cache.
        key
            Numba's key: types of arguments, a description of the processor, and digests of the bytecode.
        """
        if not self._digests or _SETTINGS.CPU_NAME not in (None, TARGET_CPU):
            return None
        file, (_, processor, _) = _file_of(name, key), key
        digest = self._digests.get(file)
        if digest is None or not has_features(processor[2]):
            return None
        try:
            content = (self._folder / file).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                return None
            (triple, *of), data = pickle.loads(content)
            return pickle.loads(data) if [triple, *of] == [processor[0], *_described(name, key)] else None
        except Exception:
            return None


def has_features(described: str) -> bool:
    """Return whether a processor, described as LLVM does (``+avx,-avx512f``), has all features of `TARGET_CPU`."""
    has = {feature[1:] for feature in described.split(",") if feature.startswith("+")}
    return has.issuperset(FEATURES)


def _described(name: str, key: Any) -> list[Any]:
    """Return the parts of a key that do not depend on the processor, with the name of the kernel's files."""
    signature, _, bytecode = key
    return [name, signature, bytecode]


def _file_of(name: str, key: Any) -> str:
    return hashlib.sha256(repr(_described(name, key)).encode()).hexdigest()[:24]


def write_folder(cache: Path, folder: Path, stamp: str) -> int:
    """Write the folder `prebuilt` from Numba's cache of a process with `ENVIRONMENT`.

    Parameters
    ----------
    cache
        Folder in which that process cached what it compiled (``NUMBA_CACHE_DIR``).
    folder
        Made, or emptied before.
    stamp
        Digest of the sources.

    Returns
    -------
    int
        Number of files besides the manifest.

    Raises
    ------
    ValueError
        When the cache holds code for another processor, or two kernels cannot be distinguished.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    digests = {}
    for index in sorted(cache.rglob("*.nbi")):
        with index.open("rb") as file:
            if pickle.load(file) != numba.__version__:
                continue
            stored_stamp, overloads = pickle.loads(file.read())
        if stored_stamp != stamp:
            continue
        for key, data_name in overloads.items():
            triple, processor, features = key[1]
            if processor != TARGET_CPU or features != ENVIRONMENT["NUMBA_CPU_FEATURES"]:
                raise ValueError(f"{index} holds code for {processor!r} with {features!r}")
            name = index.name.removesuffix(".nbi")
            content = pickle.dumps(([triple, *_described(name, key)], (index.parent / data_name).read_bytes()))
            written = _file_of(name, key)
            if written in digests:
                raise ValueError(f"two kernels share the name {name!r}")
            digests[written] = hashlib.sha256(content).hexdigest()
            (folder / written).write_bytes(content)
    manifest = {"about": about(stamp), "target": TARGET_CPU, "files": dict(sorted(digests.items()))}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return len(digests)
