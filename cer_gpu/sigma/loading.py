"""Rules of Sigma as CEQL by their titles: `load`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cer_gpu.cache import disk_cached
from cer_gpu.engine.evaluation_options import options_by_name
from cer_gpu.errors import CerError, OptionError, QueryError
from cer_gpu.rule import Rule
from cer_gpu.sigma.files import files_in, is_path
from cer_gpu.sigma.loaded import Refused, SigmaRules

_LISTS = ("tags", "tactics", "techniques")


def write_rules(rules: SigmaRules) -> bytes:
    """Return rules as JSON; raises ValueError for an error of unknown kind."""
    plain = {
        "rules": {name: asdict(rule) for name, rule in rules.rules.items()},
        "fields": rules.fields,
        "refused": [[each.name, _plain_error(each.error), each.kind, each.file] for each in rules._refused],
        "skipped_files": rules.skipped_files,
        "silenced": rules.silenced,
        "log_sources": rules.log_sources,
    }
    return json.dumps(plain).encode()


def read_rules_of(content: bytes) -> SigmaRules:
    """Return the rules that `write_rules` was given."""
    plain_rules = json.loads(content)
    refused = [Refused(name, _error_of_plain(plain), kind, file) for name, plain, kind, file in plain_rules["refused"]]
    fields, silenced = ({name: tuple(of) for name, of in plain_rules[each].items()} for each in ("fields", "silenced"))
    rules = {name: _rule_of_plain(of) for name, of in plain_rules["rules"].items()}
    return SigmaRules(rules, fields, refused, plain_rules["skipped_files"], silenced, plain_rules["log_sources"])


def _rule_of_plain(plain: dict[str, Any]) -> Rule:
    groups = tuple(map(tuple, plain["column_groups"]))
    return Rule(**plain | {name: tuple(plain[name]) for name in _LISTS} | {"column_groups": groups})


def _plain_error(error: CerError) -> list[Any]:
    if type(error) is OptionError and len(error.args) == 1:
        return ["option", str(error.args[0])]
    if type(error) is QueryError:
        return ["query", error.message, error.text, error.start, error.end, error.hint]
    raise ValueError(f"{type(error).__name__} is not kept")


def _error_of_plain(plain: list[Any]) -> CerError:
    kind, *of = plain
    return OptionError(*of) if kind == "option" else QueryError(*of)


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
        Columns of the events by the names of fields, or of columns that a pipeline gives them; these come last.
    nocase_groups
        True if in the groups of correlations, and among distinct values, strings that differ only in case
        are one value, as in the tests of rules; False to tell them apart.

    Returns
    -------
    SigmaRules
        A mapping from title to text, for `cer_gpu.compile_all`.  Rules that cannot be written are in its `errors`.

    Raises
    ------
    OptionError
        When there is no pySigma, nothing to read, or no pipeline of that name.
    """
    if columns is not None and not (isinstance(columns, Mapping) and all(map(_is_string, columns.values()))):
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
        key_parts = [*parts, *_contents(rules), "by", *_contents(pipelines)]
    except (TypeError, OSError, PackageNotFoundError):
        return make()  # objects, or missing files, which it reports
    return disk_cached("sigma", key_parts, make, write_rules, read_rules_of)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _contents(sources: Any) -> Iterator[str | bytes]:
    """Yield what identifies rules or pipelines: strings, files with contents; raises TypeError for objects."""
    if not isinstance(sources, str | os.PathLike):
        if not isinstance(sources, list | tuple):
            raise TypeError
        for each in sources:
            yield from _contents(each)
    elif is_path(sources) and os.path.exists(sources):
        for path in files_in(Path(sources)):
            yield str(path)
            yield path.read_bytes()
    else:
        yield str(sources)
