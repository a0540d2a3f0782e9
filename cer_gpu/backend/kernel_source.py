"""Find and read the CUDA C++ sources that ship with this package.

A wheel carries them as ``cer_gpu/kernels/``; a checkout keeps them in ``kernels/`` next to ``cer_gpu/``.
Those are the only two places looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r'^\s*#include\s+"([\w.]+)"\s*$')


def kernel_folder() -> Traversable:
    """Return the folder of the CUDA sources: inside the wheel, else the checkout's.

    Raises
    ------
    FileNotFoundError
        Neither folder holds ``common.cuh``.
    """
    package = files("cer_gpu")
    installed = package.joinpath("kernels")
    checkout = Path(str(package)).parent / "kernels"
    for folder in (installed, checkout):
        if folder.joinpath("common.cuh").is_file():
            return folder
    raise FileNotFoundError(
        f"no CUDA sources: neither {installed} nor {checkout} holds common.cuh; "
        "reinstall cer-gpu, or run from a checkout that has kernels/"
    )


def kernel_names() -> list[str]:
    """Return the names of the kernel files (``.cu``), which are compiled as they are, sorted."""
    return sorted(p.name for p in kernel_folder().iterdir() if p.name.endswith(".cu"))


def read_kernel_source(name: str, without: Iterable[str] = ()) -> str:
    """Return the kernel file `name` as one text to compile.

    Parameters
    ----------
    name
        A file, ``compaction.cu`` or ``select.cuh``.
    without
        Files compiled before it, which are not inlined again.

    Returns
    -------
    str
        The source with its local includes inlined, each once; ``#line`` marks keep the compiler's messages
        on the original files and lines.

    Raises
    ------
    FileNotFoundError
        There is no such file, or one that it includes is missing.
    """
    return _inline(kernel_folder(), name, set(without))


def _inline(folder: Traversable, filename: str, seen: set[str]) -> str:
    if filename in seen:
        return ""
    seen.add(filename)
    resource = folder.joinpath(filename)
    if not resource.is_file():
        names = ", ".join(sorted(p.name for p in folder.iterdir()))
        raise FileNotFoundError(f"no CUDA source {filename!r} in {folder}; found: {names}")
    lines = [f'#line 1 "kernels/{filename}"']
    for number, line in enumerate(resource.read_text(encoding="utf-8").splitlines(), start=1):
        if include := _INCLUDE.match(line):
            lines.append(_inline(folder, include.group(1), seen))
            lines.append(f'#line {number + 1} "kernels/{filename}"')
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
