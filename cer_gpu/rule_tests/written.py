"""Values of a YAML file that know their lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import OptionError, did_you_mean

YAML_MISSING = "rule tests need PyYAML\nhint: pip install 'cer-gpu[yaml]'"


class WrittenValue:
    """A value in a YAML file.

    Parameters
    ----------
    node
        Node of PyYAML.
    loader
        Loader that made it, which makes plain data of it.
    file
        Name of the file, for errors.

    Attributes
    ----------
    line : int
    """

    def __init__(self, node: Any, loader: Any, file: str) -> None:
        self._node = node
        self._loader = loader
        self.file = file
        self._checked: set[int] = vars(loader).setdefault("checked_mappings", set())
        self.line: int = node.start_mark.line + 1

    @property
    def plain(self) -> Any:
        """The value as plain data."""
        import yaml

        try:
            return self._loader.construct_object(self._node, deep=True)
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that there is not
            raise self.error(getattr(error, "problem", None) or str(error)) from None

    def error(self, message: str) -> OptionError:
        """Return the error for this value."""
        return OptionError(f"{self.file}:{self.line}: {message}")

    def mapping(self, what: str, known: Iterable[str] | None = None) -> dict[str, WrittenValue]:
        """Return the values of a mapping by their keys; OptionError: it is none, or has a key that is not known.

        Parameters
        ----------
        what
            Words for the mapping.
        known
            The keys that it may have; None: any text.
        """
        if self._node.id != "mapping":
            raise self.error(f"expected {what}: keys with values, got {self.shown()}")
        self._check_keys(what)
        self._loader.flatten_mapping(self._node)
        names = None if known is None else list(known)
        found: dict[str, WrittenValue] = {}
        for key, node in self._node.value:
            place = WrittenValue(key, self._loader, self.file)
            name = place.plain
            if not isinstance(name, str):
                raise place.error(f"expected a text as a key of {what}, got {name!r}")
            if names is not None and name not in names:
                raise place.error(f"unknown key {name!r} of {what}\nhint: {did_you_mean(name, names, 'keys')}")
            found[name] = WrittenValue(node, self._loader, self.file)
        return found

    def _check_keys(self, what: str) -> None:
        """Refuse a key that stands twice in the mapping itself: those that ``<<`` brings are overwritten."""
        if id(self._node) in self._checked:  # and has them beside its own since then
            return
        self._checked.add(id(self._node))
        lines: dict[str, int] = {}
        for key, _ in self._node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines and not key.tag.endswith(":merge"):
                place = WrittenValue(key, self._loader, self.file)
                raise place.error(f"{what} has the key {name!r} twice, first in line {lines[name]}")
            lines[name] = line

    def items(self, what: str) -> list[WrittenValue]:
        """Return the items of a list; OptionError: it is none."""
        if self._node.id != "sequence":
            raise self.error(f"expected {what}: a list, got {self.shown()}")
        return [WrittenValue(node, self._loader, self.file) for node in self._node.value]

    @property
    def is_list(self) -> bool:
        """True for a list."""
        return bool(self._node.id == "sequence")

    def text(self, what: str) -> str:
        """Return a text; OptionError: it is none."""
        value = self.plain
        if not isinstance(value, str) or not value:
            raise self.error(f"expected {what}: a text, got {self.shown()}")
        if not value.isascii() and value.encode("utf-8", "replace") != value.encode("utf-8", "surrogatepass"):
            raise self.error(f"expected {what}: a text, got one with half a character: {value!a}")
        return value

    def shown(self) -> str:
        """Return the value in short, for a message."""
        kinds = {"mapping": "keys with values", "sequence": "a list"}
        return kinds.get(self._node.id) or ("nothing" if self.plain is None else repr(self.plain))


def read_yaml(path: Path) -> WrittenValue:
    """Read a YAML file; OptionError: it cannot be read, is no YAML, or is empty."""
    try:
        import yaml
    except ImportError:
        raise OptionError(YAML_MISSING) from None
    text = read_query_file(path)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or str(error)
        raise OptionError(f"{path}:{line}: is not YAML: {problem}") from None
    except RecursionError:
        raise OptionError(f"{path}:{loader.line + 1}: is nested too deep for cases of a rule test") from None
    if node is None:
        raise OptionError(f"{path}:1: expected cases of a rule test, found nothing")
    return WrittenValue(node, loader, str(path))
