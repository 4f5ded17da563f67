"""The recorder's maps in the pictures: a cell for each layer and recorded step, where it belongs."""

import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from pellucid.report.chart import Axis, Heatmap
from pellucid.report.svg.marks import hex_color
from pellucid.training.history.charts import COLUMNS, LAYERS_SIZE
from tests.cli.commands import Shell
from tests.training.history.test_charts_layers import line
from tests.training.sample_events import folder

SVG = "{http://www.w3.org/2000/svg}"


def recorded(path: Path, *steps: int) -> None:
    (path / "recorder.jsonl").write_text("".join(f"{json.dumps(line(step))}\n" for step in steps))


def heatmap(values: Sequence[float] = (), columns: Sequence[float] = (), high: float = 1) -> Heatmap:
    rows = np.array([values or columns], float)
    return Heatmap("", Axis("step", 0, high), "layer", rows, "log", columns=np.array(columns, float))


def cells(path: Path) -> list[ElementTree.Element]:
    text = path.read_text("utf-8")
    pictures = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))  # a page has one for each map
    picture = ElementTree.fromstring(f"<all>{pictures}</all>")
    return [rect for rect in picture.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]


def test_every_layer_and_step_has_its_cell_with_its_figure(shell: Shell, tmp_path: Path) -> None:
    recorded(folder(tmp_path / "a", 300), 1, 100, 200, 300)
    folder(tmp_path / "b", 100)  # has no record, and needs none
    assert shell("plot", "a", "b", "-o", "c.svg").code == 0
    drawn = cells(tmp_path / "c.svg")
    assert len(drawn) == 4 * (4 + 4 + 3 + 2)
    titles = [cell.findtext(f"{SVG}title") for cell in drawn]
    assert titles[12:14] == ["embedding, step 1: 0.5", "embedding, step 100: 0.5"]
    assert "block 10, step 300: 9" in titles and "block 0, step 200: 5" in titles
    words = (tmp_path / "c.svg").read_text()
    assert "layers of a" in words and "layers of b" not in words


def test_the_page_has_them_as_well(shell: Shell, tmp_path: Path) -> None:
    recorded(folder(tmp_path / "a", 300), 1, 100)
    assert shell("plot", "a", "-o", "c.html").code == 0
    assert len(cells(tmp_path / "c.html")) == 2 * 13


def test_cells_meet_in_the_middle_between_two_steps() -> None:
    assert heatmap(columns=[0, 100, 300], high=400).edges().tolist() == [0, 50, 200, 400]
    assert heatmap(columns=[10], high=20).edges().tolist() == [0, 20]


def test_a_long_record_makes_no_long_picture(shell: Shell, tmp_path: Path) -> None:
    recorded(folder(tmp_path / "a", 3000), *range(1, 3001))
    assert shell("plot", "a", "-o", "c.svg").code == 0
    drawn = cells(tmp_path / "c.svg")
    assert len(drawn) == 13 * COLUMNS
    row = [float(cell.get("width", "0")) for cell in drawn[:COLUMNS]]
    assert sum(row) == pytest.approx(LAYERS_SIZE[0], abs=30)


def test_colors_are_placed_by_the_logarithm() -> None:
    place = heatmap([1, 10, 100, 0, np.inf, np.nan]).place
    assert place(np.array([1.0, 10, 100])).tolist() == [0, 0.5, 1]
    assert np.isnan(place(np.array([0, np.inf, np.nan]))).all()
    assert heatmap([5.0]).place(np.array([5.0])).tolist() == [0.5]
    assert hex_color(float("nan"), "log") == "#e8ebef"


def test_a_run_whose_gradients_were_never_finite_is_drawn_without_them(shell: Shell, tmp_path: Path) -> None:
    bad = line(1)
    bad["parameters"] = {name: {"weight": 1.0, "gradient": None} for name in bad["parameters"]}
    (folder(tmp_path / "a", 5) / "recorder.jsonl").write_text(json.dumps(bad) + "\n")
    done = shell("plot", "a", "-o", "c.svg")
    assert done.code == 0, done.err
    drawn = (tmp_path / "c.svg").read_text("utf-8")
    assert "residual stream after each block, RMS" in drawn and "update / weight" not in drawn


def test_a_damaged_record_is_refused_with_its_line(shell: Shell, tmp_path: Path) -> None:
    (folder(tmp_path / "a", 5) / "recorder.jsonl").write_text("{}\n[]\n{}\n")
    done = shell("plot", "a", "-o", "c.svg")
    assert done.code == 2 and "recorder.jsonl is damaged: line 1" in done.err


def test_a_png_has_them_where_matplotlib_is(shell: Shell, tmp_path: Path) -> None:
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        pytest.skip("no matplotlib")
    recorded(folder(tmp_path / "a", 300), 1, 100)
    assert shell("plot", "a", "-o", "c.png").code == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
