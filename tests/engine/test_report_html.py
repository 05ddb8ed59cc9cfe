"""Reports as HTML: whole, of one file, safe with any name, and right in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import wattsched
from tests.strategies.pages import Page
from wattsched.instances.digest import digest_of
from wattsched.plot.style import FILLS
from wattsched.report.html import page as html
from wattsched.report.html.pictures import COLOURS, NodeMap, Series, chart, cluster_map, map_note
from wattsched.report.html.solved import page_of

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.json"
EVIL = '<script>alert(1)</script>"\' onload="alert(2)'


def report_of(instance, **options) -> str:
    return html.rendered(page_of(wattsched.solve(instance, **options), instance, "wattsched solve it.json"))


def address(folder: Path, page: html.Page | None = None) -> str:
    """Where a page is, by default the report of the example."""
    file = folder / "report.html"
    file.write_text(report_of(wattsched.read_instance(DEMO)) if page is None else html.rendered(page))
    return file.as_uri()


@pytest.mark.parametrize("family", ["uniform", "hetero", "shifting", "sharing", "placement"])
def test_every_problem_has_a_whole_page_that_fetches_nothing(family) -> None:
    instance = wattsched.generate(family, jobs=8, seed=1)
    page = Page(report_of(instance, time_limit=30))
    assert {"title", "h1", "main", "table"} <= {tag for tag, _ in page.seen}


def test_names_are_text_whatever_they_hold() -> None:
    document = json.loads(DEMO.read_text())
    document["name"] = document["jobs"][0]["name"] = document["cluster"]["nodes"][0]["name"] = EVIL
    for job in document["jobs"]:
        job.pop("current", None)
    page = Page(report_of(wattsched.Instance.model_validate(document)))
    assert sum(tag == "script" for tag, _ in page.seen) == 1
    assert not [name for _, attrs in page.seen for name in attrs if name.startswith("on")]
    assert EVIL in page.text


@pytest.mark.usefixtures("explained")
def test_infeasible_rounds_have_a_page_that_says_so_and_which_limits_contradict() -> None:
    document = json.loads(DEMO.read_text())
    document["budgets"]["power_w"] = 1.0
    text = report_of(wattsched.Instance.model_validate(document))
    assert 'class="verdict bad"' in text
    assert "infeasible: " in text
    assert "power cap" in " ".join(Page(text).text).partition("Contradiction")[2]


def test_objectives_in_order_say_what_is_kept_of_the_first_and_which_instance_was_read() -> None:
    instance = wattsched.read_instance(DEMO)
    text = " ".join(Page(report_of(instance, objective=["goodput", "energy"])).text)
    assert re.search(r"1\. goodput: .*; afterwards at least", text)
    assert digest_of(instance) in text


def test_a_cluster_of_512_gpus_is_less_than_a_megabyte_and_every_gpu_is_drawn() -> None:
    instance = wattsched.generate("uniform", jobs=300, gpus=512, seed=2)
    text = report_of(instance, gap=1e-2)
    assert len(text.encode()) < 1_000_000
    assert text.count("<rect") >= 512


@pytest.mark.parametrize(
    ("gpus", "gone", "said"), [(8, 0, "is a GPU"), (8, 1, "dashed"), (1_200, 0, "is a node")]
)
def test_maps_say_what_their_squares_are(gpus, gone, said) -> None:
    nodes = [NodeMap(f"n{i}", gpus, {1: 0}, frozenset(range(2, 2 + gone))) for i in range(4)]
    assert said in map_note(nodes)
    drawn = str(cluster_map(nodes, ["<job>"]))
    assert drawn.count("<title>&lt;job&gt;: ") == (4 if "GPU" in said or gone else 0)
    assert ("4 of 4,800 GPUs used on 4 nodes" in drawn) == (said == "is a node")


def test_tables_of_amounts_are_sorted_by_their_size() -> None:
    told = [["a", "559.8 MJ (155 kWh)", "46.8 min"], ["b", "1.044 GJ (290 kWh)", "2.43 h"], ["c", "none", ""]]
    table = html.text_table("Cluster", "", ["policy", ">energy", ">mean"], told)
    orders = [[cell.order for cell in row.cells] for row in table.rows]
    assert orders == [[None, 559.8e6, 2808.0], [None, 1.044e9, 8748.0], [None, None, None]]


@pytest.mark.parametrize("family", ["shifting", "sharing", "placement"])
def test_yes_and_no_are_no_numbers(family) -> None:
    instance = wattsched.generate(family, jobs=4, seed=1)
    *_, decision = [
        part for part in page_of(wattsched.solve(instance), instance).parts if part.kind == "table"
    ]
    column = decision.columns.index("waiting")
    assert {row.cells[column].text for row in decision.rows} <= {"yes", "no"}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(theme) -> None:
    style = report_of(wattsched.generate("uniform", jobs=2, seed=1)).split("<style>")[1]
    parts = re.split(r"@media screen and \(prefers-color-scheme: dark\)", style)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", parts[0]))
    if theme == "dark":
        colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", parts[1]))
    for ink in ("ink", "faint"):
        for paper in ("paper", "card"):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
    for mark in ("accent", "good", "fair", "bad"):
        assert contrast(colours[mark], colours["card"]) >= 3.0, mark


def test_jobs_have_the_colours_of_plots_which_the_colour_blind_tell_apart() -> None:
    style = report_of(wattsched.generate("uniform", jobs=2, seed=1)).split("<style>")[1]
    colours = [colour for _, colour in sorted(re.findall(r"--(c\d): (#[0-9a-f]{6})", style))]
    assert colours == [fill.lower() for fill in FILLS]
    assert len(colours) == COLOURS


def contrast(one: str, other: str) -> float:
    """Contrast of two colours [WCAG 2.2, relative luminance]."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_tables_sort_and_show_where_a_job_is_by_keyboard_alone(browser, tmp_path) -> None:
    page = browser.opened(address(tmp_path))
    table = page.locator("table").last
    titles = table.locator("thead th").all_inner_texts()
    column = titles.index("GPUs")

    def order() -> list[int]:
        cells = table.locator(f"tbody tr > :nth-child({column + 1})")
        return [int(text) for text in cells.all_inner_texts()]

    title = table.locator("thead th").nth(column)
    title.locator("button").focus()
    for direction, down in (("ascending", False), ("descending", True)):
        page.keyboard.press("Enter")
        assert title.get_attribute("aria-sort") == direction
        assert order() == sorted(order(), reverse=down)
    table.locator("tbody tr").first.focus()
    assert page.locator("rect.lit").count() == order()[0]
    assert not browser.messages


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_is_white(browser, tmp_path, theme) -> None:
    page = browser.opened(address(tmp_path), theme=theme)
    page.emulate_media(media="print")
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert contrast(f"#{bytes(map(int, re.findall(r'[0-9]+', ink))).hex()}", "#ffffff") >= 4.5


def test_charts_are_pictures_of_their_own_with_every_point_and_name() -> None:
    curves = [Series("<a>", [0.0, 10.0], [5.0, 5.0]), Series("b$", [2.5], [0.0])]
    drawn = [chart(curves, "energy, %", y, points=True, mark=(1.0, 2.0, "now")) for y in ("s", "h")]
    pictures = [html.Picture(title, body) for title, body in zip("AB", drawn, strict=True)]
    page = Page(html.rendered(html.Page("Charts", "", "", parts=pictures)))
    words = [text.strip() for text in page.text]
    assert all(words.count(one) == 2 for one in ("<a>", "b$", "now", "energy, %"))
    assert len({attrs["aria-label"] for _, attrs in page.seen if attrs.get("role") == "img"}) == 2
    with pytest.raises(ValueError, match="no point to draw"):
        chart([], "x", "y")
