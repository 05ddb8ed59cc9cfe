"""The site is built strictly, has every public name, and shows without a request to another host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import wattsched
from tests.docs.markdown import blocks_of
from tests.strategies.browser import Browser
from wattsched import plot

ROOT = Path(__file__).resolve().parents[2]
FETCHED = {"audio", "embed", "iframe", "img", "link", "object", "script", "source", "track", "video"}
"""Elements whose addresses a browser fetches without being asked."""


class Fetched(HTMLParser):
    """Addresses that a page makes a browser fetch."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in FETCHED:
            self.found += [value or "" for name, value in attrs if name in ("src", "srcset", "href", "data")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing about requests."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_the_reference_has_every_public_name() -> None:
    pages = (ROOT / "docs" / "reference").glob("*.md")
    stated = set(re.findall(r"^::: (\S+)$", "\n".join(p.read_text() for p in pages), flags=re.MULTILINE))
    names = {f"wattsched.{name}" for name in wattsched.__all__ if name not in ("__version__", "plot")}
    assert names | {f"wattsched.plot.{name}" for name in plot.__all__} <= stated


@pytest.mark.slow
def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    assert not {address for page in pages for address in Fetched(page).found if "//" in address}
    sheets = "\n".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?(https?:)?//|@import", sheets)


@pytest.mark.slow
def test_every_formula_is_drawn(site: Path) -> None:
    drawn = 0
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        formulas = re.findall(r"<math.*?</math>", text, flags=re.DOTALL)
        assert 'class="arithmatex"' not in text, page.name
        assert not [formula for formula in formulas if "\\" in formula], page.name
        drawn += len(formulas)
    written = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    written = re.sub(r"^```.*?^```$|`[^`\n]+`", "", written, flags=re.DOTALL | re.MULTILINE)
    assert drawn == len(re.findall(r"\$\$.+?\$\$|\$[^$]+\$", written, flags=re.DOTALL)) > 200


@pytest.mark.slow
def test_names_of_the_python_page_lead_to_the_reference(site: Path) -> None:
    page = (site / "python.html").read_text(encoding="utf-8")
    for name in set(wattsched.__all__) - {"__version__", "plot"}:
        assert re.search(rf'href="reference/[\w-]+\.html#wattsched\.{name}"><code>{name}<', page), name


@pytest.mark.slow
def test_the_reference_has_what_the_pages_import(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    described = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    blocks = [block for page in (ROOT / "docs").glob("*.md") for block in blocks_of(page)]
    text = "\n".join(block.text for block in blocks if block.language == "python")
    imported = re.findall(r"^from (wattsched[\w.]*) import (.+)$", text, flags=re.MULTILINE)
    names = {f"{module}.{name.strip()}" for module, names in imported for name in names.split(",")}
    assert len(names) > 40
    assert not names - described - {"wattsched.plot"}


@pytest.mark.slow
def test_what_is_there_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {entry["location"]: entry["title"] for entry in index["docs"]}
    assert {"researcher.html", "embedding.html", "tables/suite.html"} <= titles.keys()
    assert "reference/solving.html#wattsched.solve" in titles


@pytest.mark.slow
@pytest.mark.parametrize("page", ["index", "model", "plots", "reference/solving"])
def test_a_browser_shows_it_without_a_message(browser: Browser, address: str, page: str) -> None:
    """A browser that finds no other host would tell of every request to one."""
    assert browser.opened(f"{address}/{page}.html").locator(".md-content").is_visible()
    assert not browser.messages
