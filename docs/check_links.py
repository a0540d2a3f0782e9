"""Check every link of the built site: to pages, headings and names in them, pictures and scripts (`make site`).

    .venv/bin/python docs/check_links.py build/site

Links of the repository's own pages to files that are not in the site (README.md, docs/ and the pages beside) are
checked in the checkout.  Addresses elsewhere are not asked, as CI reaches none: they must be https.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md")
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """Links of a page, and the places in it that links can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link or a place."""
        for name, value in attrs:
            if value and name in ("href", "src") and not (tag == "link" and ("rel", "canonical") in attrs):
                self.links.append(value)
            elif value and (name == "id" or (name == "name" and tag == "a")):
                self.places.add(value)


@cache
def page(path: Path) -> Page:
    """Return a page of the site."""
    return Page(path.read_text(encoding="utf-8"))


def wrong_in_site(site: Path) -> list[str]:
    """Return the links of a site that lead nowhere."""
    wrong, n_links = [], 0
    for path in sorted(site.rglob("*.html")):
        for link in page(path).links:
            n_links += 1
            parts = urlsplit(link)
            if parts.scheme in ("data", "mailto", "javascript", "https"):
                continue
            if parts.scheme or parts.netloc:
                wrong.append(f"{path.relative_to(site)}: {link}: neither https nor in the site")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if path.name == "404.html":  # its links are from the root of the site, wherever it is shown
                target = site / unquote(parts.path).lstrip("/") if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                wrong.append(f"{path.relative_to(site)}: {link}: there is no {unquote(parts.path)}")
            elif parts.fragment and target.suffix == ".html" and not is_place(target, unquote(parts.fragment)):
                wrong.append(f"{path.relative_to(site)}: {link}: no {parts.fragment} there")
    print(f"{n_links} links of {len(list(site.rglob('*.html')))} pages")
    return wrong


def is_place(target: Path, fragment: str) -> bool:
    """Return whether a link can lead to a place of a page; the page of a report reads what follows by itself."""
    return fragment in page(target).places or "=" in fragment or fragment == "__top"


def wrong_in_checkout() -> list[str]:
    """Return the links of the repository's pages to files that are not there."""
    wrong = []
    for path in sorted({each for pattern in SOURCES for each in ROOT.glob(pattern)}):
        for pair in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
            link = unquote(urlsplit(pair[0] or pair[1]).path)
            if "://" in (pair[0] or pair[1]) or not link:
                continue
            if not (path.parent / link).exists():
                wrong.append(f"{path.relative_to(ROOT)}: {link}: there is no such file")
    return wrong


def main() -> int:
    """Print the wrong links of the site and of the checkout."""
    wrong = wrong_in_site(Path(sys.argv[1]).resolve()) + wrong_in_checkout()
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
