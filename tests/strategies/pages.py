"""Pages of reports, read as a browser would read them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "rect"}


class Page(HTMLParser):
    """Elements of a page: all that begins ends, nothing is fetched, and what the blind are told is there."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        """Elements that have not ended, and whether a name of theirs stands for all that is in them."""
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, f"not closed: {self.open}"
        links = [attrs.get(name) for _, attrs in self.seen for name in ("src", "href") if name in attrs]
        assert links == ["data:,"]
        ids = [attrs["id"] for _, attrs in self.seen if "id" in attrs]
        assert len(ids) == len(set(ids))
        named = [attrs["aria-labelledby"] for _, attrs in self.seen if "aria-labelledby" in attrs]
        assert set(named) <= set(ids)
        assert [attrs.get("lang") for tag, attrs in self.seen if tag == "html"] == ["en"]
        levels = [int(tag[1]) for tag, _ in self.seen if re.fullmatch("h[1-6]", tag)]
        assert levels == [1, *[2] * (len(levels) - 1)]
        assert all(attrs.get("scope") in ("col", "row") for tag, attrs in self.seen if tag == "th")
        assert all(attrs.get("aria-label") for _, attrs in self.seen if attrs.get("role") == "img")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.seen.append((tag, known))
        assert len(known) == len(attrs), f"an attribute of {tag} is there twice"
        told = known.get("role") == "img" or known.get("aria-hidden") == "true"
        told = told or any(above for _, above in self.open)
        assert told or tag != "svg", "a picture without a name"
        if tag not in VOID or (tag == "rect" and "data-job" in known):
            self.open.append((tag, told))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
