"""Rules of Sigma as texts of CEQL by their titles: `load`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cer_gpu.cache import disk_cached
from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import OptionError
from cer_gpu.sigma.files import files_in, is_given_as_path
from cer_gpu.sigma.keeping import read_rules_of, write_rules
from cer_gpu.sigma.loaded import SigmaRules

PYSIGMA_MISSING = "Sigma's rules need pySigma\nhint: pip install 'cer-gpu[sigma]'"


@options_by_name
def load(
    rules: Any,
    pipelines: Any = (),
    columns: Mapping[str, str] | None = None,
    *,
    nocase_groups: bool = False,
) -> SigmaRules:
    """Read rules of Sigma and write them in CEQL (docs/reference/sigma.md).

    Parameters
    ----------
    rules
        The path of a file or folder, YAML as a text, a collection or rule of pySigma, or a list of these.
    pipelines
        Names of pipelines ("windows", "sysmon", "windows_audit", "ecs", "linux", "cloudtrail", "zeek"), pipelines of
        pySigma, and paths of files with such, in any number.  Without one, rules are tested on events of all log
        sources.
    columns
        Columns of the events by the names of fields, or of columns that a pipeline puts in their place: the last word.
    nocase_groups
        True: in the groups of correlations, and among distinct values, strings that differ in the case of letters alone
        are one value, as in the tests of rules; False: they are several.

    Returns
    -------
    SigmaRules
        A mapping from title to text, for `cer_gpu.compile_all`.  Rules that cannot be written are in its `errors`.

    Raises
    ------
    OptionError
        When there is no pySigma, nothing to read, or no pipeline of that name.
    """
    if columns is not None and not (isinstance(columns, Mapping) and all(map(_is_text, columns.values()))):
        raise OptionError(f"columns must map fields to names of columns, got {columns!r}")
    if not isinstance(pipelines, str | os.PathLike | Iterable) and not hasattr(pipelines, "apply"):
        raise OptionError(f"pipelines must be names, paths or pipelines of pySigma, got {type(pipelines).__name__}")

    def make() -> SigmaRules:
        try:
            version("pysigma")  # the plugin alone is a package of the name sigma, too
            from cer_gpu.sigma.converting import converted
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in ("pysigma", "sigma", "yaml"):
                raise
            raise OptionError(PYSIGMA_MISSING) from None
        return converted(rules, pipelines, dict(columns or {}), nocase_groups)

    try:
        parts = [version("pysigma"), repr(sorted((columns or {}).items())), repr(bool(nocase_groups))]
        made_of = [*parts, *_contents(rules), "by", *_contents(pipelines)]
    except (TypeError, OSError, PackageNotFoundError):
        return make()  # objects, or what is not there, of which it tells
    return disk_cached("sigma", made_of, make, write_rules, read_rules_of)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _contents(given: Any) -> Iterator[str | bytes]:
    """Yield what tells rules, or pipelines, from others: texts, and files with their contents; TypeError: objects."""
    if not isinstance(given, str | os.PathLike):
        if not isinstance(given, list | tuple):
            raise TypeError
        for each in given:
            yield from _contents(each)
    elif is_given_as_path(given) and os.path.exists(given):
        for path in files_in(Path(given)):
            yield str(path)
            yield path.read_bytes()
    else:
        yield str(given)
