"""Calibration of a model's probabilities: `pellucid.calibrate`, for a model and what it is compared with.

A calibration is measured for each of: the model, its weights rounded to other types, the checkpoints of its
run, and further models.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.base.arguments import (
    check_bool,
    check_float,
    check_function,
    check_int,
    check_path,
    check_text,
    to_list,
)
from pellucid.base.errors import FileError, UsageError
from pellucid.base.files import check_distinct
from pellucid.evaluation.calibration.measure import Calibration
from pellucid.evaluation.calibration.report import CALIBRATION, report_calibrations, to_data
from pellucid.evaluation.evaluate import check_read_once
from pellucid.explanation.trace import Trace
from pellucid.model import AnyModel, Model, Paths, load, to_model
from pellucid.report.report import Report, Reported

if TYPE_CHECKING:
    from pellucid.evaluation.documents import Documents


MOST_TARGETS = 10_000
"""Targets that are read, where a call does not say how many: their hidden states are held in memory."""
MOST_BINS = 1000
LOWEST, HIGHEST = 0.01, 100.0
"""Temperatures that can be asked for."""

Progress = Callable[[str, int, int | None], None]
"""Called with what is computed, the targets that are done, and their total, None where it is not known."""


class CandidateModel(NamedTuple):
    """A model to calibrate, whose weights are read when its turn comes."""

    name: str
    context_length: int
    open: "Callable[[], Model]"


def calibrate(
    model: "Model | str | os.PathLike[str]",
    /,
    data: Paths,
    *,
    against: AnyModel | Sequence[AnyModel] = (),
    quantize: str | Sequence[str] = (),
    checkpoints: bool = False,
    temperatures: float | Sequence[float] = (),
    vector: bool = False,
    curve: bool = True,
    bins: int = 15,
    fit_share: float = 0.5,
    max_targets: int = MOST_TARGETS,
    window: int | None = None,
    stride: int | None = None,
    split: str = "file",
    limit: int | str | None = None,
    seed: int = 0,
    save: bool = False,
    output: Paths = (),
    trace: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> "CalibrationReport":
    """Returns how well a model's probabilities are calibrated, and the temperature that calibrates them.

    `data` is as for `evaluate`; its first `max_targets` counted targets are read. About `fit_share` of the
    documents, drawn by the `seed`, are what the temperature is fitted on (and with `vector` a factor and a
    shift for each token); everything is measured on the others. `temperatures` are further ones to measure.
    `against` are further models, `quantize` types to which the weights are rounded ("Q8_0", "Q4_0"), and
    `checkpoints` adds those of the model's run.

    `save` writes the fitted temperature into the model's folder as its generation setting, unless it is a
    limit of the fit or raises the NLL of the test part. `output` is a
    file (.json, .svg, .html, .png) or a list of them, `trace` a trace file for `explain`. The files show the
    NLL at temperatures around the fitted one; without such a `curve`, calibrating a large vocabulary takes
    about two thirds of the time.

    >>> import pathlib, tempfile, pellucid
    >>> text = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = text.write_text("A B C D " * 10)
    >>> report = pellucid.calibrate("abcd", text, bins=5)
    >>> print(f"T = {report.fitted_temperature:.3f}")
    T = 3.033
    >>> found = pellucid.explain(report.trace, at="bins.gap[1]")
    >>> print(f"{found.value:.4f}: {found.formula}")
    -0.2965: gap[m] = acc_B[m] - conf_B[m]
    """
    model = to_model(model)
    from pellucid.evaluation.windows import resolve_window
    from pellucid.explanation import trace_file

    values = [check_float("temperatures", one, LOWEST, HIGHEST) for one in to_list(temperatures)]
    settings = {
        "bins": check_int("bins", bins, least=1, most=MOST_BINS),
        "fit_share": check_float("fit_share", fit_share, 0.0, 1.0),
        "seed": check_int("seed", seed, least=0),
    }
    reading: dict[str, Any] = {
        "max_targets": check_int("max_targets", max_targets, least=1),
        "window": None if window is None else check_int("window", window, least=1),
        "stride": None if stride is None else check_int("stride", stride, least=1),
        "split": check_text("split", split),
        "limit": limit,
    }
    check_function("progress", progress)
    sources = [check_path("data", one) for one in to_list(data)]
    outputs = [Path(check_path("output", one)) for one in to_list(output)]
    traced = None if trace is None else Path(check_path("trace", trace))
    check_distinct([*outputs, *([] if traced is None else [traced])])
    for path in outputs:
        CALIBRATION.check(path, check_bool("force", force))
    if traced is not None:
        trace_file.check_trace_output(traced, force)
    folder = find_settings_folder(model) if check_bool("save", save) else None
    candidates = _list_candidates(
        model, to_list(against), to_list(quantize), check_bool("checkpoints", checkpoints)
    )
    check_read_once(sources, len(candidates))
    shortest = min(candidate.context_length for candidate in candidates)
    reading["window"], reading["stride"] = resolve_window(shortest, reading["window"], reading["stride"])
    flags = {"has_vector": check_bool("vector", vector), "has_curve": check_bool("curve", curve)}
    measuring = {"temperatures": values, **flags, **settings}
    found, notes, is_interrupted = _measure_all(candidates, sources, reading, measuring, progress)
    if folder is not None:
        notes.append(save_temperature(folder, found[0]))
    about = {"data": sources, **reading, **settings}
    report = CalibrationReport(tuple(found), tuple(notes), about, is_interrupted)
    for path in outputs:
        report.save(path, force)
    if traced is not None:
        trace_file.write(report.trace, traced, force=force)
    return report


# ---- what is compared


def _list_candidates(
    model: "Model", against: Sequence[Any], quantize: Sequence[Any], checkpoints: bool
) -> list[CandidateModel]:
    """Returns the models to calibrate; what cannot be opened is refused before any is measured."""
    from pellucid.formats.gguf.quants import check_kind

    name, length = model.short_name, model.config.context_length
    kinds = [check_kind(check_text("quantize", one)) for one in quantize]
    steps = list_checkpoints(model) if checkpoints else []
    found = [
        CandidateModel(name, length, lambda: model),
        *(CandidateModel(f"{name} as {kind}", length, partial(_round, model, kind)) for kind in kinds),
        *(
            CandidateModel(f"{name} at step {step:,}", length, partial(_open_like, model, str(path)))
            for step, path in steps
        ),
        *(_name_candidate(model, one) for one in against),
    ]
    seen = Counter[str]()
    for i, candidate in enumerate(found):
        seen[candidate.name] += 1
        if (number := seen[candidate.name]) > 1:
            found[i] = candidate._replace(name=f"{candidate.name} ({number})")
    return found


def _name_candidate(model: "Model", given: Any) -> CandidateModel:
    """Returns a further model, given as one or by its name."""
    from pellucid.formats.resolve import open_model

    if isinstance(given, Model):
        return CandidateModel(given.short_name, given.config.context_length, lambda: given)
    name = check_path("against", given)
    found = open_model(name)
    return CandidateModel(found.short_name, found.config.context_length, partial(_open_like, model, name))


def _open_like(model: "Model", path: str) -> "Model":
    """Returns a model that computes where and as the first does."""
    return load(path, device=model.device, dtype=model.dtype)


def _round(model: "Model", kind: str) -> "Model":
    from pellucid.formats.gguf.quants import round_weights

    return model.replace(weights=round_weights(model.config.parameters(), model.weights, kind))


def list_checkpoints(model: "Model") -> list[tuple[int, Path]]:
    """Returns the steps and models of the checkpoints that the run of a model keeps, the first one first."""
    from pellucid.formats.checkpoint_manifest import BEST, CHECKPOINTS, MODEL, parse_step
    from pellucid.formats.folder import RECIPE, has_file

    place = model.pretrained.provenance.path.absolute()
    run = None
    if place.name in (MODEL, BEST):  # of a run, or of one of its checkpoints
        folder = place.parent
        folder = folder.parent.parent if folder.parent.name == CHECKPOINTS else folder
        run = folder if has_file(folder, RECIPE) else None
    if run is None:
        raise UsageError(
            f"{model.name} is not the model of a run, so it has no checkpoints: omit checkpoints."
        )
    steps = ((parse_step(path.name), path / MODEL) for path in (run / CHECKPOINTS).glob("step-*"))
    found = sorted((step, path) for step, path in steps if step is not None and has_file(path, "config.json"))
    if not found:
        raise UsageError(
            f"{run} keeps no checkpoint: train with checkpoint.every, and checkpoint.keep of 2 or more."
        )
    return found


# ---- measuring


def _measure_all(
    candidates: Sequence[CandidateModel],
    sources: list[str],
    reading: dict[str, Any],
    measuring: dict[str, Any],
    progress: Progress,
) -> "tuple[list[Calibration], list[str], bool]":
    """Returns the calibrations, remarks on them, and whether an interrupt left some models out."""
    found, notes = list["Calibration"](), list[str]()
    for candidate in candidates:
        try:
            measured, note = _measure(candidate, sources, reading, measuring, progress)
        except KeyboardInterrupt:
            if not found:
                raise
            notes.append(f"Interrupted: {candidate.name} and what comes after it is not measured.")
            return found, notes, True
        found.append(measured)
        notes += [note] if note and note not in notes else []
    return found, notes, False


def _measure(
    candidate: CandidateModel,
    sources: list[str],
    reading: dict[str, Any],
    measuring: dict[str, Any],
    progress: Progress,
) -> "tuple[Calibration, str]":
    """Returns the calibration of a model, and a remark on how much was read of the data."""
    from pellucid.evaluation.calibration.measure import measure_calibration
    from pellucid.evaluation.calibration.states import hold_states
    from pellucid.evaluation.documents import read_documents

    model, most = candidate.open(), reading["max_targets"]
    documents = read_documents(sources, model.pretrained, split=reading["split"], limit=reading["limit"])
    sizes = {name: reading[name] for name in ("window", "stride")}
    done, total = 0, None if "-" in sources else count_targets(documents, most)

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        progress(f"{candidate.name}: reading", done, total)

    count(0)
    states = hold_states(model.module, documents, **sizes, most=most, progress=count)
    tokenizer = documents.tokenizer

    def show(id: int) -> str:
        return tokenizer.visible(id) if id < tokenizer.vocab_size else f"#{id}"

    calibration = measure_calibration(
        candidate.name,
        states,
        show,
        progress=lambda what, rows, total: progress(f"{candidate.name}: {what}", rows, total),
        **measuring,
    )
    is_cut = len(states) == most
    return calibration, f"The first {most:,} targets were read; more: max_targets (--max-targets)." * is_cut


def count_targets(documents: "Documents", most: int) -> int:
    """Returns the number of targets that are read of some documents, at most `most`."""
    total = 0
    for document in documents:
        if (total := total + int(document.is_counted.sum())) >= most:
            return most
    return total


# ---- saving


def find_settings_folder(model: "Model") -> Path:
    """Returns the folder whose generation settings a model reads; raises where it has none to write to."""
    from pellucid.formats.companions import GENERATION

    place = model.pretrained.provenance.path
    if (place / GENERATION).is_symlink():
        raise FileError(
            f"{place / GENERATION} is a link, so a temperature that is saved there would not be this model's "
            "alone: put the file itself there."
        )
    if place.is_dir() and (place / "config.json").is_file():
        return place
    raise FileError(
        f"{model.name} is not a model folder, so it has no generation_config.json to save a temperature in: "
        "`pellucid export` makes a folder of it; or give the temperature with each request."
    )


def save_temperature(folder: Path, calibration: "Calibration") -> str:
    """Writes a fitted temperature as the generation setting of a model's folder, unless it is a limit of the
    fit or raises the NLL of the test part; returns what was changed, or why nothing was."""
    from pellucid.formats.companions import GENERATION, write_generation

    fit, after = calibration.temperature_fit, calibration.after
    if fit is None or after is None:
        return "No temperature is saved: none was fitted."
    if fit.is_bounded:
        return f"No temperature is saved: the NLL has no minimum, and T = {fit.temperature:g} is a limit."
    if after.nll.value > calibration.before.nll.value:
        return "No temperature is saved: the fitted one raises the NLL of the test part."
    changes = {"do_sample": True, "temperature": float(f"{fit.temperature:.6g}")}
    before = write_generation(folder, changes)
    words = ", ".join(f"{key} {_show(before[key])} → {_show(value)}" for key, value in changes.items())
    return f"Saved in {folder / GENERATION}: {words}."


def _show(value: Any) -> str:
    return "not set" if value is None else json.dumps(value)


@dataclass(frozen=True, repr=False)
class CalibrationReport(Reported):
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

    def report(self) -> Report:
        return report_calibrations(self.calibrations, self.notes, self.data)

    @property
    def fitted_temperature(self) -> float | None:
        """The temperature at which the model's probabilities fit best; None where nothing was fitted."""
        return self.calibrations[0].fitted_temperature

    @property
    def trace(self) -> Trace:
        """The model's calibration as steps, which `pellucid.explain` takes apart."""
        return self.calibrations[0].trace

    def to_data(self) -> dict[str, Any]:
        return to_data(self.calibrations, self.data)
