"""Hook of mkdocs: pages of the site that stand outside of docs/, and links between the two.

README.md is the front page, written once: links of it into docs/ lose that folder, and links of docs/ to files beyond
the site become plain text.  The reference of the Python API, which pdoc has written to build/reference, is taken in.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "build" / "reference"
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "examples/data/README.md": "examples/data/README.md",
}
"""Pages outside of docs/, from the root of the checkout, and their places in the site."""

CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<label>(?:[^\[\]]|!\[[^\]]*\]\([^)]*\)|<img[^>]*>)*)\]\((?P<target>[^)\s]+)\)")
SOURCE = re.compile(r'(?<=src=")(?P<target>[^"]+)(?=")')
FETCHED = re.compile(
    r'<(?:script|img|iframe|link rel="(?:stylesheet|preconnect)")[^>]*(?:src|href)="(?:https?:)?//[^"]*"'
)
SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside of docs/, and the reference."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    for page in sorted(REFERENCE.rglob("*")):
        if page.is_file():
            place = page.relative_to(REFERENCE).as_posix()
            files.append(File(place, str(REFERENCE), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Let links lead to places in the site, and show Python sessions as such."""
    place = page.file.src_uri
    source = next((source for source, made in OUTSIDE.items() if made == place), f"docs/{place}")
    known = set(files.src_uris)
    pieces = CODE.split(markdown)
    pieces[::2] = [moved(piece, source, place, known) for piece in pieces[::2]]
    return SESSION.sub("```pycon\n", "".join(pieces))


def on_post_page(output: str, *, page: Any, **_: Any) -> None:
    """Refuse a page that fetches something, as it is read without a network."""
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch {found[0]}")


def moved(text: str, source: str, place: str, known: set[str]) -> str:
    """Return text of a page with its links, which are relative to the source, relative to the place in the site."""

    def target_of(target: str) -> str | None:
        if "://" in target or target.startswith("#"):
            return target
        path, mark, anchor = target.partition("#")
        from_root = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        in_site = OUTSIDE.get(from_root, from_root.removeprefix("docs/"))
        if in_site not in known and (ROOT / from_root).exists():
            return None
        return posixpath.relpath(in_site, posixpath.dirname(place) or ".") + mark + anchor

    def link(match: re.Match[str]) -> str:
        label, target = SOURCE.sub(picture, match["label"]), target_of(match["target"])
        return label if target is None else f"{match['image']}[{label}]({target})"

    def picture(match: re.Match[str]) -> str:
        return target_of(match["target"]) or match["target"]

    return LINK.sub(link, text)
