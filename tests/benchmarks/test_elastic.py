"""The tables of elastic jobs have a page."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_room_for_the_tables() -> None:
    text = (ROOT / "docs" / "elastic.md").read_text(encoding="utf-8")
    for part in ("gains", "against-sidecar"):
        assert text.count(f"<!-- {part} -->") == text.count(f"<!-- /{part} -->") == 1
