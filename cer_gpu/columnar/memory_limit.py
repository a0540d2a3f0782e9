"""The limit of the memory for matches that are needed all at once, and the memory of the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cer_gpu.errors import OptionError, OutOfMemoryError

_UNITS = {"b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    _UNITS |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_LITTLE = 1 << 20
_HINT = "a shorter WITHIN, SELECT ANY, or a larger max_memory (--max-memory)"


def size_in_bytes(size: str | int, option: str = "max_memory") -> int:
    """Return a size in bytes: a number of them, or a string such as ``"500MB"`` (of 1000) or ``"2GiB"`` (of 1024).

    Parameters
    ----------
    size
    option
        Name of the option that has it, for the message.

    Raises
    ------
    OptionError
    """
    if isinstance(size, str):
        parsed = _SIZE.fullmatch(size.strip())
        unit = _UNITS.get(parsed[2].lower()) if parsed else None
        n_bytes = int(float(parsed[1]) * unit) if parsed and unit else 0
    else:
        n_bytes = size if type(size) is int else 0
    if n_bytes < 1:
        raise OptionError(f"{option} must be a size such as '2GiB' or '500MB', or a number of bytes, got {size!r}")
    return n_bytes


def shown_size(n_bytes: int) -> str:
    """Return a size for people."""
    size, unit = float(n_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{n_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def machine_memory() -> int | None:
    """Return the bytes of memory that this process can have, or None if the system does not report it.

    The least of the physical memory, the limits of its control groups, and that of its address space.
    """
    limits = [*_physical(), *_of_cgroups(), *_of_address_space()]
    return min(limits, default=None)


def _physical() -> Iterator[int]:
    try:
        n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return
    if n_bytes > 0:
        yield n_bytes


def _of_cgroups() -> Iterator[int]:
    """Yield the limits of the control groups of this process, and of their parents."""
    try:
        lines = _OWN_CGROUPS.read_text().splitlines()
    except (OSError, UnicodeDecodeError):  # only on Linux
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, name = _CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            try:
                text = (root / folder / name).read_text().strip()
            except (OSError, UnicodeDecodeError):  # of another name space
                continue
            if text.isdecimal():  # not "max"
                yield int(text)


def _of_address_space() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        yield limit


@dataclass(frozen=True)
class MemoryLimit:
    """The limit of the memory for matches that one query, on one thread, needs all at once.

    Parameters
    ----------
    requested
        A size, as a string or in bytes; None: half of the memory of the machine.
    """

    requested: str | int | None = None

    @property
    def n_bytes(self) -> int | None:
        """The limit in bytes, or None if there is none, as the system does not report its memory."""
        if self.requested is not None:
            return size_in_bytes(self.requested)
        machine = machine_memory()
        return None if machine is None else machine // 2

    @contextmanager
    def reserve(self, n_bytes: int, what: Callable[[], str]) -> Iterator[None]:
        """Let a block allocate memory, `n_bytes` in all, if the limit and the system allow it.

        Parameters
        ----------
        n_bytes
        what
            Returns the subject of the message: the need for the memory, up to the verb.

        Raises
        ------
        OutOfMemoryError
        """
        # querying the system is not worth it for little memory
        limit = None if self.requested is None and n_bytes < _LITTLE else self.n_bytes
        if limit is not None and n_bytes > limit:
            of = "" if self.requested is not None else ", half of the memory of the machine"
            raise memory_error(what(), f"more than max_memory ({shown_size(limit)}{of})")
        try:
            yield
        except OutOfMemoryError:
            raise
        except MemoryError:
            raise memory_error(what(), "more memory than is left") from None


HALF_OF_MACHINE = MemoryLimit()


def memory_error(what: str, needed: str) -> OutOfMemoryError:
    """Return the error for matches that need too much memory."""
    return OutOfMemoryError(f"{what} {needed}\nhint: {_HINT}")
