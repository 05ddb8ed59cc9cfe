"""Pages of reports, read as a browser would read them."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "rect"}


class Page(HTMLParser):
    """Elements of a page: all that begins ends, nothing is fetched, and labels are there."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
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

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is there twice"
        if tag not in VOID or (tag == "rect" and "data-job" in dict(attrs)):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
