"""What the site makes of pages that a Git host shows, too.

Formulas become MathML, which browsers draw with a font of the site and without a script; links that name a
file name its page; names of the package lead to the reference; example scripts stand on their page.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from mkdocs.structure.files import File

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
FILE_NAME = re.compile(r'(<a [^>]*href="([^"#]+)[^>]*>)[\w/-]+\.md</a>')
SCRIPT = re.compile(r"\(\.\./examples/(\w+)\.py\)")
NAME = re.compile(r"<code>(wattsched(?:\.\w+)+)</code>")
FIRST_COLUMN = re.compile(r"<tr>\s*<td>(?:<code>\w+</code>(?:, )?)+</td>")

LETTERS = (*range(0x20, 0x7F), *range(0x300, 0x340), *range(0x370, 0x400))
ITALICS = (0x210E, 0x2124, *range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C))
SIGNS = (0xB1, 0xB7, 0xD7, *range(0x2000, 0x2070), *range(0x2190, 0x2310), 0x29F5)


def on_files(files: Any, config: Any) -> None:
    """Add the font of formulas: the part of STIX Two Math that they may need."""
    font = TTFont(distribution("ziamath").locate_file("ziamath/fonts/STIXTwoMath-Regular.ttf"))
    subsetter = Subsetter(Options(layout_features=["math", "ssty"]))
    subsetter.populate(unicodes=[*LETTERS, *ITALICS, *SIGNS])
    subsetter.subset(font)
    font.flavor = "woff"
    made = io.BytesIO()
    font.save(made)
    files.append(File.generated(config, "stylesheets/formulas.woff", content=made.getvalue()))


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Add the scripts that a page links to, which a Git host has beside the pages."""
    names = dict.fromkeys(SCRIPT.findall(markdown))
    for name in names:
        script = Path(config.docs_dir, "..", "examples", f"{name}.py").read_text(encoding="utf-8")
        markdown += f"\n## `{name}.py` {{ #{name} }}\n\n```python\n{script}```\n"
    return SCRIPT.sub(r"(#\1)", markdown)


def on_page_content(text: str, page: Any, **_: Any) -> str:
    """Write formulas as MathML, and let names of the package lead to the reference."""
    text = NAME.sub(lambda name: _reference(name[1], name[0]), FORMULA.sub(_mathml, text))
    if page.file.src_uri == "python.md":
        text = FIRST_COLUMN.sub(_public_names, text)
    return text


def on_env(env: Any, files: Any, **_: Any) -> None:
    """Name pages by their titles where a Git host shows the names of their files."""
    pages = [file.page for file in files.documentation_pages()]
    titles = {page.url: page.title for page in pages}
    for page in pages:
        page.content = FILE_NAME.sub(partial(_titled, titles, dirname(page.url)), page.content)


def _titled(titles: Mapping[str, str], folder: str, link: re.Match[str]) -> str:
    return f"{link[1]}{titles[normpath(join(folder, link[2]))]}</a>"


def _mathml(formula: re.Match[str]) -> str:
    return convert(html.unescape(formula[2]).strip(), display="block" if formula[1] == "div" else "inline")


def _public_names(cell: re.Match[str]) -> str:
    return re.sub(r"<code>(\w+)</code>", lambda name: _reference(f"wattsched.{name[1]}", name[0]), cell[0])


def _reference(name: str, text: str) -> str:
    return f'<autoref identifier="{name}" optional>{text}</autoref>'
