"""Reports as HTML: whole, of one file, safe with any name, and right in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from strategies.pages import Page

import wattsched
from wattsched.plot.style import FILLS
from wattsched.report.html.page import rendered
from wattsched.report.html.pictures import COLOURS
from wattsched.report.html.solved import page_of

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.json"
EVIL = '<script>alert(1)</script>"\' onload="alert(2)'
CHROMIUM = shutil.which("chromium")


def report_of(instance, **options) -> str:
    return rendered(page_of(wattsched.solve(instance, **options), instance, "wattsched solve it.json"))


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


def test_infeasible_rounds_have_a_page_that_says_so() -> None:
    document = json.loads(DEMO.read_text())
    document["budgets"]["power_w"] = 1.0
    text = report_of(wattsched.Instance.model_validate(document))
    assert 'class="verdict bad"' in text
    assert "infeasible: " in text


def test_a_cluster_of_512_gpus_is_less_than_a_megabyte_and_every_gpu_is_drawn() -> None:
    instance = wattsched.generate("uniform", jobs=300, gpus=512, seed=2)
    text = report_of(instance, gap=1e-2)
    assert len(text.encode()) < 1_000_000
    assert text.count("<rect") >= 512


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(theme) -> None:
    style = report_of(wattsched.generate("uniform", jobs=2, seed=1)).split("<style>")[1]
    parts = re.split(r"@media \(prefers-color-scheme: dark\)", style)
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


PROBE = """
<script>
{
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const table = [...document.querySelectorAll("table")].at(-1);
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "GPUs");
  const press = () => table.tHead.rows[0].cells[column].firstChild.click();
  const order = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[column].textContent)).join();
  press();
  const up = order();
  press();
  const down = order();
  // A window without a screen may not have the focus to give.
  table.tBodies[0].rows[0].dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
  const lit = document.querySelectorAll("rect.lit").length;
  document.title = JSON.stringify({ wide, up, down, lit });
}
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium, which CI installs")
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_a_browser_shows_it_without_a_message_and_its_tables_sort(tmp_path, width) -> None:
    instance = wattsched.read_instance(DEMO)
    file = tmp_path / "report.html"
    file.write_text(report_of(instance).replace("</body>", f"{PROBE}</body>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    options += ["--enable-logging=stderr", f"--window-size={width},900", "--virtual-time-budget=5000"]
    options += ["--dump-dom", file.as_uri()]
    shown = subprocess.run([str(CHROMIUM), *options], capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in shown.stderr
    found = re.search(r'<title>\{"wide":(\d+),"up":"([\d,]+)","down":"([\d,]+)","lit":(\d+)\}', shown.stdout)
    assert found is not None
    up, down = ([int(gpus) for gpus in order.split(",")] for order in (found[2], found[3]))
    assert int(found[1]) == 0  # nothing but tables scrolls sideways
    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert int(found[4]) == down[0]  # the GPUs of the job whose row has the focus
