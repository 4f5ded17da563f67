"""Plots that are alike share a section, and with it the room of the largest."""

from dataclasses import replace

import numpy as np

from pellucid.report.figure import group_plots, make_figure
from pellucid.report.html import draw_plots
from tests.report.examples import BARS, CHANNELS, MAP, PATTERN


def test_plots_of_one_kind_and_maps_of_one_shape_stand_together() -> None:
    wide = replace(MAP, values=np.zeros((2, 4)), columns="abcd")
    sections = group_plots([PATTERN, CHANNELS, MAP, MAP, wide, BARS], heading="all")
    assert [len(section.plots) for section in sections] == [2, 2, 1, 1]
    assert [section.heading for section in sections] == ["all", "", "", ""]
    assert make_figure("", MAP, MAP).sections == group_plots([MAP, MAP])
    assert group_plots([]) == []


def test_on_a_page_a_grid_has_its_own_size_beside_a_wider_one() -> None:
    def find_widths(*grids: object) -> list[str]:
        return [line.split("viewBox=")[1].split('"')[1] for line in draw_plots(grids, "") if "<svg" in line]  # type: ignore[arg-type]

    assert find_widths(PATTERN, CHANNELS) == [*find_widths(PATTERN), *find_widths(CHANNELS)]
