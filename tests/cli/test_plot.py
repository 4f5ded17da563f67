"""`plot` as a person meets it, and that its pictures show what the logs hold."""

import importlib
import itertools
import json
import re
import shutil
import struct
import subprocess
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pellucid.report import png
from pellucid.report.figure import Figure, Section
from pellucid.report.file import FIGURE
from pellucid.report.report import report_figure
from pellucid.report.svg import tile, write_svg
from pellucid.training.events import Evaluated, Stepped
from pellucid.training.history.charts import curve_charts
from pellucid.training.history.curves import RunCurves, run_curves
from pellucid.training.history.log import Log, make_line, read
from tests.cli.commands import Shell
from tests.training.sample_events import evaluated, events, folder, stepped

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def drawn(path: Path) -> ElementTree.Element:
    text = path.read_text("utf-8")
    assert not re.search(r"\b(nan|inf)\b", text)
    pictures = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))  # a page has one for each panel
    return ElementTree.fromstring(f"<all>{pictures}</all>")


def figure(*runs: RunCurves) -> Figure:
    return Figure("", [Section("", curve_charts(runs))])


def values(page: Path) -> dict[str, Any]:
    """Returns what the page shows under the pointer."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"))
    assert found
    return dict(json.loads(found[1]))


def test_four_panels_with_all_runs_and_a_legend(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "a", 300)
    folder(tmp_path / "b", 120, floor=None)
    done = shell("plot", "a", "b", "-o", "curves.svg")
    assert (done.code, done.out, done.err) == (0, "curves.svg: 2 runs, 300 steps\n", "")
    picture = drawn(tmp_path / "curves.svg")
    words = [text.text for text in picture.iter(f"{SVG}text")]
    for word in ("a", "b", "loss", "validation loss", "learning rate", "gradient norm", "entropy floor"):
        assert word in words, word
    groups = [group for group in picture.iter(f"{SVG}g") if group.get("clip-path")]
    assert [len(list(group.iter(f"{SVG}polyline"))) for group in groups] == [4, 2, 2, 4]


def test_names_of_many_runs_stand_in_columns_above_the_panels(shell: Shell, tmp_path: Path) -> None:
    names = [f"run-{i:02}-with-a-name-of-some-length" for i in range(11)]
    for name in names:
        folder(tmp_path / name, 3)
    assert shell("plot", *names, "-o", "curves.svg").code == 0
    texts = list(drawn(tmp_path / "curves.svg").iter(f"{SVG}text"))
    places = [(float(text.get("x", 0)), float(text.get("y", 0))) for text in texts if text.text in names]
    assert len(set(places)) == 11 and len({x for x, _ in places}) == 2  # columns of six and five
    assert all(b - a > 7 * len(names[0]) for (a, y), (b, z) in itertools.pairwise(places) if y == z)
    assert max(y for _, y in places) < min(float(t.get("y", 0)) for t in texts if t.text == "loss")


def test_every_axis_says_what_it_counts(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "a", 300)
    shell("plot", "a", "-o", "curves.svg")
    words = [text.text for text in drawn(tmp_path / "curves.svg").iter(f"{SVG}text")]
    assert words.count("steps") == 4 and words.count("nats per token") == 2


def test_a_point_is_drawn_where_its_step_and_value_belong() -> None:
    """The validation loss falls from 3 to 1 between steps 0 and 200, by hand."""
    lines = [{"kind": "step", "step": step, "loss": 5.0, "lr": 1.0, "grad_norm": 1.0} for step in (0, 200)]
    lines += [
        {"kind": "evaluation", "step": step, "loss": loss}
        for step, loss in ((0, 3.0), (100, 2.0), (200, 1.0))
    ]
    chart = curve_charts([run_curves("a", lines)])[1]
    assert (chart.x.low, chart.x.high) == (0, 200)
    (wide, high), up = Section("", [chart]).size, chart.y.high - chart.y.low
    picture = ElementTree.fromstring(write_svg(figure(run_curves("a", lines))))
    group = [group for group in picture.iter(f"{SVG}g") if group.get("clip-path")][1]
    points = next(group.iter(f"{SVG}polyline")).get("points", "").split()
    xs, ys = np.array([point.split(",") for point in points], float).T
    assert xs - xs[0] == pytest.approx([0, wide / 2, wide], abs=0.1)
    assert ys - ys[0] == pytest.approx([0, high / up, 2 * high / up], abs=0.1)


def test_the_page_is_self_contained_and_knows_every_value(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "a", 300)
    folder(tmp_path / "b", 120)
    assert shell("plot", "a", "b", "-o", "curves.html").code == 0
    text = (tmp_path / "curves.html").read_text("utf-8")
    assert set(re.findall(r"https?://[^\"')\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "{{" not in text and not re.search(r"\b(src|href)=|@import|url\((?!#)", text)
    data = values(tmp_path / "curves.html")
    assert [run["name"] for run in data["names"]] == ["a", "b"]
    validation = data["panels"][1]
    assert validation["title"] == "validation loss"
    assert validation["curves"][0]["steps"] == [100, 200, 300]
    assert validation["curves"][0]["values"] == [1.25, 1.25, 1.25]
    assert validation["curves"][1]["steps"] == [100]
    drawn(tmp_path / "curves.html")


def write_log(path: Path, epochs_per_step: float | None) -> None:
    path.mkdir()
    with Log(path / "log.jsonl") as log:
        for event in events(300):
            counts = isinstance(event, Stepped | Evaluated) and epochs_per_step is not None
            log.write(event, **({"epoch": round(event.step * (epochs_per_step or 0), 4)} if counts else {}))


def test_curves_lie_over_epochs_where_the_log_counts_them(shell: Shell, tmp_path: Path) -> None:
    write_log(tmp_path / "a", 0.02)
    write_log(tmp_path / "endless", None)
    assert shell("plot", "a", "-o", "c.html", "--by", "epoch").code == 0
    panel = values(tmp_path / "c.html")["panels"][1]
    assert (panel["unit"], panel["first"], panel["curves"][0]["steps"]) == ("epoch", 0, [2.0, 4.0, 6.0])
    assert "a: loss ↑, epochs →" in shell("plot", "a", "--by", "epoch").out
    refused = shell("plot", "a", "endless", "--by", "epoch")
    assert refused.code == 2 and "the log of endless counts no epochs" in refused.err


def test_what_the_model_wrote_stands_below_the_curves_by_its_step(shell: Shell, tmp_path: Path) -> None:
    write_log(tmp_path / "a", 0.02)
    with Log(tmp_path / "a" / "log.jsonl") as log:
        log.write(evaluated(400, sample="a <b>\n\x1b[2J cat"))
    assert shell("plot", "a", "-o", "c.html").code == 0
    page = (tmp_path / "c.html").read_text("utf-8")
    assert "<h2>a, step 100, epoch 2.00</h2>\n<pre>Once upon a time.</pre>" in page
    assert "<pre>a &lt;b&gt;\n\\x1b[2J cat</pre>" in page
    assert "a, step 100, epoch 2.00: Once upon a time." in shell("plot", "a").out


def test_the_pointer_is_answered(tmp_path: Path) -> None:
    """The page's own script, in a page of a few lines: the nearest step of every run that is still there."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    runs = [run_curves(name, map(make_line, events(n))) for name, n in (("a", 300), ("b", 120))]
    text = report_figure(figure(*runs)).to_html()
    script = text[text.rindex("<script>") + 8 : text.rindex("</script>")]
    found = re.search(r'id="data">(.*?)</script>', text)
    assert found
    panel = json.loads(found[1])["panels"][1]
    stand_in = """
    class Element {
      constructor() { this.childNodes = []; this.style = {}; this.heard = {}; this.set = {}; }
      appendChild(x) { this.childNodes.push(x); return x; }
      replaceChildren() { this.childNodes = []; this.textContent = ""; }
      setAttribute(k, v) { this.set[k] = v; }
      addEventListener(k, f) { this.heard[k] = f; }
      getScreenCTM() { return { inverse: () => null }; }
    }
    const page = { data: new Element(), tip: new Element() };
    const panels = [1, 2, 3, 4].map(() => new Element());
    page.data.textContent = process.argv[2];
    globalThis.document = { getElementById: k => page[k], querySelectorAll: () => panels,
      createElement: () => new Element(), createElementNS: () => new Element() };
    globalThis.DOMPoint = class {
      constructor(x, y) { this.x = x; this.y = y; }
      matrixTransform() { return this; }
    };
    globalThis.innerWidth = globalThis.innerHeight = 1000;
    """
    at = [panel["left"] + (step - 1) / 299 * panel["wide"] for step in (104, 290)]
    moves = "".join(
        f"panels[1].heard.pointermove({{ clientX: {x}, clientY: {panel['top'] + 5} }});"
        "console.log(page.tip.childNodes.map(x => x.textContent).join('; '));"
        for x in at
    )
    (tmp_path / "page.js").write_text(stand_in + script + moves, "utf-8")
    done = subprocess.run([node, tmp_path / "page.js", found[1]], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "a  step 100  1.25; b  step 100  1.25\na  step 300  1.25\n"


def test_a_name_that_looks_like_a_place_of_the_page_is_only_a_name(tmp_path: Path) -> None:
    name = "{{VALUES}} {{DRAWING}}"
    report_figure(figure(run_curves(name, map(make_line, events(5))))).save(tmp_path / "c.html")
    assert values(tmp_path / "c.html")["names"][0]["name"] == name
    assert len(list(drawn(tmp_path / "c.html").iter(f"{SVG}text"))) > 10


def test_letters_have_eleven_pixels_where_a_panel_is_as_wide_as_a_telephone(
    shell: Shell, tmp_path: Path
) -> None:
    """A window of 400 pixels leaves 384 for a panel; a tile is no wider in its own units."""
    folder(tmp_path / "a", 300)
    width, _ = tile(figure(run_curves("a", map(make_line, events(5)))).sections[0]).outer
    assert shell("plot", "a", "-o", "c.html").code == 0
    page = (tmp_path / "c.html").read_text("utf-8")
    assert 'name="viewport" content="width=device-width"' in page and width <= 384
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', page)]
    assert sizes and min(sizes) >= 11


def test_the_axis_of_losses_that_are_positive_does_not_go_below_zero() -> None:
    lines = [{"kind": "step", "step": step, "loss": 5.0 / step} for step in range(1, 101)]
    lines += [{"kind": "evaluation", "step": step, "loss": 5.0 / step} for step in (1, 100)]
    for chart in curve_charts([run_curves("a", lines)])[:2]:
        assert 0 <= chart.y.low < 0.05 + 1e-12 and chart.y.high > 5


def test_a_window_of_any_size_is_averaged_over_or_refused(shell: Shell, tmp_path: Path) -> None:
    curves = run_curves("a", map(make_line, events(9)))
    assert curves.loss.smooth(10**30).values.tolist() == curves.loss.smooth(9).values.tolist()
    folder(tmp_path / "a", 9)
    assert shell("plot", "a", "--smooth", "99999999999999999999").code == 2
    assert shell("plot", "a", "--smooth", "999999999").code == 0


def test_a_long_name_stays_within_forty_columns_of_characters(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / f"long-{'x' * 60}-17", 9)
    monkeypatch.setenv("COLUMNS", "40")
    first = shell("plot", f"long-{'x' * 60}-17").out.splitlines()[0]
    assert first.startswith("long-x") and "…" in first and "-17: loss" in first and len(first) <= 40


def test_names_are_text_wherever_they_stand(shell: Shell, tmp_path: Path) -> None:
    name = "<script>alert(1)<!-- & \x1b[2J"
    (tmp_path / "x").mkdir()
    folder(tmp_path / "x" / name.replace("/", ""), 5)
    for kind in ("svg", "html"):
        assert shell("plot", f"x/{name}", "-o", f"c.{kind}").code == 0
        text = (tmp_path / f"c.{kind}").read_text("utf-8")
        assert "<script>alert" not in text and "\x1b" not in text
        drawn(tmp_path / f"c.{kind}")
    assert values(tmp_path / "c.html")["names"][0]["name"] == r"<script>alert(1)<!-- & \x1b[2J"


def test_runs_of_one_name_are_named_by_their_paths(shell: Shell, tmp_path: Path) -> None:
    for place in ("x", "y"):
        folder(tmp_path / place / "a", 5)
    assert shell("plot", "x/a", "y/a/log.jsonl", "-o", "c.html").code == 0
    assert [run["name"] for run in values(tmp_path / "c.html")["names"]] == ["x/a", "y/a"]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_of_one_step_is_a_point(shell: Shell, tmp_path: Path, steps: int) -> None:
    folder(tmp_path / "a", steps, floor=None)
    for kind in ("svg", "html"):
        assert shell("plot", "a", "-o", f"c.{kind}").code == 0
        drawn(tmp_path / f"c.{kind}")
    assert shell("plot", "a").code == 0


def test_a_loss_that_is_not_finite_is_a_gap_and_a_spike_leaves_the_picture(tmp_path: Path) -> None:
    with Log(folder(tmp_path / "a", 200) / "log.jsonl") as log:
        for step, loss in ((201, float("nan")), (202, float("inf")), (203, 1e12), (204, 1.0), (205, 1.0)):
            log.write(stepped(step, loss))
    (tmp_path / "c.svg").write_bytes(write_svg(figure(run_curves("a", read(tmp_path / "a" / "log.jsonl")))))
    drawn(tmp_path / "c.svg")
    only = [make_line(stepped(step, float("nan"))) for step in (1, 2)]
    (tmp_path / "c.svg").write_bytes(write_svg(figure(run_curves("a", only))))
    drawn(tmp_path / "c.svg")


def test_without_a_file_the_curves_are_drawn_in_characters(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "a", 300)
    folder(tmp_path / "b", 120)
    done = shell("plot", "a", "b")
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 80
    assert "a: loss ↑, steps →" in done.out and "b: loss ↑, steps →" in done.out


def test_a_png_asks_for_its_extra_in_one_line(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / "a", 5)

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(png, "importlib", SimpleNamespace(import_module=missing))
    done = shell("plot", "a", "-o", "c.png")
    assert (done.code, done.out) == (2, "")
    assert "matplotlib" in done.err and "pip install 'pellucid[plot]'" in done.err
    assert not (tmp_path / "c.png").exists()


def test_a_png_is_drawn_where_matplotlib_is(shell: Shell, tmp_path: Path) -> None:
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        pytest.skip("no matplotlib")
    folder(tmp_path / "a$", 300)
    folder(tmp_path / "b", 1)
    assert shell("plot", "a$", "b", "-o", "c.png").code == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert (
        shell("plot", "b", "-o", "c.png").code == 2 and shell("plot", "b", "-o", "c.png", "--force").code == 0
    )


@pytest.mark.parametrize("kind", ["svg", "html"])
def test_only_a_picture_of_ours_is_replaced_and_only_by_order(
    shell: Shell, tmp_path: Path, kind: str
) -> None:
    folder(tmp_path / "a", 5)
    picture = tmp_path / f"c.{kind}"
    assert shell("plot", "a", "-o", picture).code == 0
    first = picture.read_bytes()
    folder(tmp_path / "b", 7)
    done = shell("plot", "b", "-o", picture)
    assert done.code == 2 and "--force" in done.err and picture.read_bytes() == first
    assert shell("plot", "b", "-o", picture, "--force").code == 0
    assert picture.read_bytes() != first
    picture.write_text("<svg>pellucid plot</svg> of another")
    done = shell("plot", "b", "-o", picture, "--force")
    assert done.code == 2 and picture.read_text().endswith("another")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [picture.name]


def test_a_png_is_known_as_ours_by_its_text_chunk(tmp_path: Path) -> None:
    for name, software, known in (("ours", b"pellucid plot", True), ("theirs", b"Matplotlib", False)):
        text = b"tEXtSoftware\0" + software
        chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
        path = tmp_path / f"{name}.PNG"
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk)
        assert (FIGURE.kind(path).why_not(path) == "") is known


@pytest.mark.parametrize("output", ["", "/", ".", "..", "a/", "taken.svg", "a.html/c.svg"])
def test_an_output_that_cannot_be_a_picture_is_refused(shell: Shell, tmp_path: Path, output: str) -> None:
    folder(tmp_path / "a", 5)
    (tmp_path / "taken.svg").mkdir()
    (tmp_path / "a.html").write_text("mine")
    for force in ([], ["--force"]):
        done = shell("plot", "a", "-o", output, *force)
        assert (done.code, done.out) == (2, ""), done
    assert (tmp_path / "a.html").read_text() == "mine"


def test_a_run_without_steps_is_not_drawn(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "a", 5)
    folder(tmp_path / "empty", 0)
    done = shell("plot", "a", "empty", "-o", "c.svg")
    assert done.code == 0 and "empty has no steps yet" in done.err


@pytest.mark.timed
def test_a_hundred_thousand_steps_are_drawn_in_three_seconds(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "a", 100_000)
    begun = time.perf_counter()
    assert shell("plot", "a", "-o", "c.html").code == 0
    assert time.perf_counter() - begun < 3
    assert (tmp_path / "c.html").stat().st_size < 500_000
