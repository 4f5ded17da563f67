"""What a calibration of one model or several found: print it, write it, or take it apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid.base import notebook
from pellucid.base.errors import UsageError
from pellucid.base.formatting import escape_controls
from pellucid.evaluation.calibration.calibration_file import (
    check_calibration_output,
    to_data,
    write_calibrations,
)
from pellucid.evaluation.calibration.measure import Calibration
from pellucid.evaluation.calibration.plots import make_figure_of
from pellucid.evaluation.calibration.text import format_calibrations
from pellucid.explanation.trace import Trace
from pellucid.report.figure import Figure
from pellucid.report.file import WRITERS, check_figure_output, write_figure

JSON = ".json"


@dataclass(frozen=True, repr=False)
class CalibrationReport:
    """The calibrations, the first of them that of the model itself."""

    calibrations: tuple[Calibration, ...]
    notes: tuple[str, ...] = ()
    """What must be known of them: how much of the data was read, what was saved."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The settings under which they were measured."""
    is_interrupted: bool = False
    """Whether an interrupt left some models out."""

    def __repr__(self) -> str:
        return f"<CalibrationReport: {', '.join(map(repr, self.calibrations))}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return notebook.line(str(self))

    def lines(self, width: int = 80) -> list[str]:
        """Returns the report as text, without control characters that a name may have."""
        shown = (*format_calibrations(self.calibrations, width), *self.notes)
        return [escape_controls(line, keep="") for line in shown]

    @property
    def fitted_temperature(self) -> float | None:
        """The temperature at which the model's probabilities fit best; None where nothing was fitted."""
        return self.calibrations[0].fitted_temperature

    @property
    def trace(self) -> Trace:
        """The model's calibration as steps, which `pellucid.explain` takes apart."""
        return self.calibrations[0].trace

    @property
    def figure(self) -> Figure:
        return make_figure_of(self.calibrations)

    def as_data(self) -> dict[str, Any]:
        return to_data(self.calibrations, self.data)


def check_report_output(path: Path, force: bool = False) -> None:
    """Raises unless a report may be written there: .json, .svg, .html or .png."""
    if path.suffix.lower() == JSON:
        check_calibration_output(path, force)
    elif path.name and path.suffix.lower() not in WRITERS:
        raise UsageError(
            f"{path} does not end in .json, .svg, .html or .png, and other formats cannot be written: use "
            f"-o {path.stem or 'calibration'}.html."
        )
    else:
        check_figure_output(path, force)


def write_report(path: Path, report: CalibrationReport, force: bool = False) -> None:
    """Writes the numbers of a report, or its figure, by the ending of the name."""
    if path.suffix.lower() == JSON:
        write_calibrations(path, report.calibrations, report.data, force)
    else:
        write_figure(path, report.figure, force)
