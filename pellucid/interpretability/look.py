"""`pellucid.look`: what happens inside a model on a prompt, in one view or several."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pellucid.base.arguments import (
    check_function,
    check_int,
    check_list,
    check_one_of,
    check_path,
    check_text,
)
from pellucid.base.errors import UsageError, unknown
from pellucid.base.files import check_distinct
from pellucid.base.formatting import escape_controls
from pellucid.evaluation.documents import read_documents
from pellucid.explanation.trace_file import check_trace_output
from pellucid.generation.settings.token_names import find_token
from pellucid.interpretability.keyed_text import make_repeated_sequences
from pellucid.interpretability.look_kinds import LOOKS, SEVERAL_PROMPTS, check_settings
from pellucid.interpretability.runner import EngineRunner, PromptedModel, Runner, SpecificationRunner
from pellucid.interpretability.tuned_lens import (
    TunedLens,
    TunedLensFit,
    check_tuned_lens_output,
    describe_fit,
    fit_tuned_lens,
    read_tuned_lens,
)
from pellucid.model import Model, load
from pellucid.report.figure import Figure, group_plots
from pellucid.report.file import VERSION, ReportFile, make_plain
from pellucid.report.items import Line, OnPage, View
from pellucid.report.page import escape_text
from pellucid.report.report import Report, Reported
from pellucid.text.prompts import Prompt, parse_prompt
from pellucid.text.sample import make_sample

LOOK = ReportFile("look", "a file of a look", "pellucid-look")
DEFAULT = ("lens", "attribution", "attention")
"""What is shown where nothing is asked for."""
ONE_TOKEN = ("token", "against", "answer", "wrong")
"""Settings that name one token, by its text or its id."""
SEVERAL_TOKENS = ("tokens", "analogy")
"""Settings that name several tokens."""
OWN_TOKENS = 64
"""Tokens of a text that is read where none was given, at most."""
PATHS = {"eager": "the fast engine", "reference": "the specification, in float64"}
Progress = Callable[[str, int, int], None]
"""Called with what is computed, how much of it is done, and how much there is."""


@dataclass(frozen=True, repr=False)
class Look(Reported):
    """The views of a model: print it, `save` it as .json, .html, .svg or .png."""

    model: str
    prompts: Sequence[Sequence[str]]
    """The tokens of each prompt, as shown."""
    views: Sequence[View]
    note: str = ""
    """The text that the views are about, where the reader gave none."""

    def __getitem__(self, kind: str) -> View:
        """Returns the view of a kind."""
        for view in self.views:
            if view.kind == kind:
                return view
        raise UsageError(unknown("view", kind, [view.kind for view in self.views]))

    def __repr__(self) -> str:
        kinds = ", ".join(view.kind for view in self.views)
        return escape_controls(f"<Look inside {self.model}: {kinds}>", keep="")

    def __str__(self) -> str:
        return self.report().to_text(100)

    def report(self) -> Report:
        return Report(
            f"Inside {self.model}",
            " ".join(view.found for view in self.views if view.found),
            [
                [Line(line) for line in self.note.splitlines()],
                [OnPage(lambda: map(_draw_prompt, self.prompts))],
                *([view] for view in self.views),
            ],
            LOOK,
            self.to_data,
            self._draw,
        )

    def to_data(self) -> dict[str, Any]:
        """Returns everything as JSON has it; a number that JSON does not have is None."""
        views = [
            {
                "kind": view.kind,
                "title": view.title,
                "formula": view.formula,
                "tables": [
                    {"caption": table.caption, "columns": list(table.columns), "rows": list(table.rows)}
                    for table in view.tables
                ],
                "notes": list(view.notes),
                "data": view.data,
            }
            for view in self.views
        ]
        about = {
            "format": LOOK.format,
            "version": VERSION,
            "model": self.model,
            "prompts": list(self.prompts),
        }
        about |= {"note": self.note} if self.note else {}
        return dict(make_plain({**about, "views": views}))

    def _draw(self) -> Figure:
        """Returns all plots of the views as one figure, each view under its title."""
        sections = (group_plots(view.plots, heading=view.title) for view in self.views)
        return Figure(f"Inside {self.model}", list(chain.from_iterable(sections)))


def _draw_prompt(tokens: Sequence[str]) -> str:
    spans = (f"<span><small>{i}</small> {escape_text(token)}</span>" for i, token in enumerate(tokens))
    return f'<p class="prompt">{"".join(spans)}</p>'


def look(
    model: Model | str | os.PathLike[str],
    prompt: Prompt | None = None,
    *,
    show: str | Sequence[str] = DEFAULT,
    path: str = "eager",
    tuned: "TunedLensFit | TunedLens | str | os.PathLike[str] | None" = None,
    progress: Progress = lambda what, done, total: None,
    **settings: Any,
) -> Look:
    """Returns views of what happens inside a model when it reads a prompt.

    `show` names views (`pellucid.interpretability.look.LOOKS` says what each shows), `path` says who
    computes: "eager", the fast engine, or "reference", the specification in float64. Further keywords are
    settings of the views: `token=" tired"` and `position=7` for an attribution, `corrupted="…"`, `answer="
    a"` and `wrong=" b"` for patching. A token is given by its text or its id. With `tuned`, a tuned lens or
    its file (`fit_lens` makes one), the lens reads every state through its fitted affine map.

    Without a prompt a view reads a text of its own, and says so first; patching and paths need two.

    >>> import pellucid
    >>> found = pellucid.look("abcd", "A B", show="attribution", token="C", path="reference")
    >>> found
    <Look inside abcd: attribution>
    """
    opened = model if isinstance(model, Model) else load(model)
    kinds = [show] if isinstance(show, str) else check_list("show", show, "a view or several")
    check_function("progress", progress)
    check_one_of("path", path, tuple(PATHS))
    for kind in kinds:
        if check_text("show", kind) not in LOOKS:
            raise UsageError(unknown("show", kind, LOOKS))
    if not kinds:
        raise UsageError(f"show is empty: give one view or several of {', '.join(LOOKS)}.")
    if tuned is not None:
        settings = {**settings, "translate": _open_lens(tuned, opened).translate}
    check_settings(kinds, settings)
    if prompt is None and (lacking := [kind for kind in kinds if LOOKS[kind].needs_prompt]):
        raise UsageError(f"{lacking[0]} compares two texts: give a prompt, and the other one.")
    note = ""
    if prompt is None and any(LOOKS[kind].lacks_prompt(settings) for kind in kinds):
        prompt, note = make_own_prompt(opened)
    runner: Runner = (
        EngineRunner(opened.module) if path == "eager" else SpecificationRunner(opened.config, opened.weights)
    )
    prompted = _prompt(opened, runner, prompt)
    values = {name: _convert(opened, runner, name, value) for name, value in settings.items()}
    views = []
    for kind in kinds:
        taken = LOOKS[kind].parameters()
        given = {name: value for name, value in values.items() if name in taken}
        if "progress" in taken:
            given["progress"] = lambda done, total, kind=kind: progress(kind, done, total)
        views.append(LOOKS[kind].find()(prompted, **given))
    if isinstance(tuned, TunedLensFit):
        views = [describe_fit(view, tuned) if view.kind == "lens" else view for view in views]
    others = [value for value in values.values() if isinstance(value, PromptedModel)]
    prompts = [some.labels for some in (prompted, *others) if some.ids]
    return Look(opened.short_name, prompts, views, note)


def make_own_prompt(model: Model) -> tuple[list[int], str]:
    """Returns the ids of a text that a model can read, where none was given, and a sentence that says so:
    a sample of what its tokenizer encodes, or random tokens twice."""
    tokenizer, config = model.pretrained.tokenizer, model.config
    begin, special = model.pretrained.bos_ids, list[int]()
    if tokenizer is not None:
        special = list(tokenizer.special_tokens.values())
        if text := make_sample(tokenizer):
            ids = model.encode(text)[: min(config.context_length, OWN_TOKENS)]
            read = tokenizer.decode(ids[len(begin) :])
            if len(ids) > 1:
                return ids, f"No prompt was given, so this is about a text of its own: {read}"
    if not (sequences := make_repeated_sequences(config, 0, begin, special)):
        raise UsageError(f"{model.name} has no text of its own of two tokens or more: give a prompt.")
    ids = list(sequences[0].ids)
    return ids, f"No prompt was given, so this is about {len(ids)} random tokens, one half twice."


def _open_lens(tuned: "TunedLensFit | TunedLens | str | os.PathLike[str]", model: Model) -> TunedLens:
    if isinstance(tuned, TunedLensFit):
        return tuned.lens
    if isinstance(tuned, TunedLens):
        return tuned
    return read_tuned_lens(Path(check_path("tuned", tuned)), model.config)


def fit_lens(
    model: Model | str | os.PathLike[str],
    data: str | Sequence[str],
    path: str | os.PathLike[str] | None = None,
    *,
    n_tokens: int = 1024,
    steps: int | None = None,
    force: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> TunedLensFit:
    """Fits a tuned lens on the first `n_tokens` tokens of some texts, as `pellucid.evaluate` reads them, and
    writes it to `path` (.safetensors) where that is given. `steps` of Adam follow a ridge regression, by
    default at most 50, and none where the vocabulary is large."""
    opened = model if isinstance(model, Model) else load(model)
    if path is not None:
        check_tuned_lens_output(Path(path), force)
    texts, left = list[list[int]](), check_int("n_tokens", n_tokens, least=1)
    for document in read_documents(data, opened.pretrained):
        texts.append(document.ids[: min(left, opened.config.context_length)].tolist())
        left -= len(texts[-1])
        if left <= 0:
            break
    found = fit_tuned_lens(
        EngineRunner(opened.module),
        texts,
        steps=None if steps is None else check_int("steps", steps, least=0),
        progress=lambda done, total: progress("fitting the lens", done, total),
    )
    if path is not None:
        found.lens.write(Path(path), force)
    return found


def check_outputs(outputs: Sequence[Path], trace: Path | None, force: bool) -> None:
    """Raises where a file that is asked for could not be written, before anything is computed."""
    check_distinct([*outputs, *([] if trace is None else [trace])])
    for file in outputs:
        LOOK.check(file, force)
    if trace is not None:
        check_trace_output(trace, force)


def trace_look(
    model: Model, prompt: Prompt | None, path: str | os.PathLike[str], force: bool = False, **settings: Any
) -> None:
    """Writes the attribution of a logit as a trace: the forward pass of the specification, by head, and the
    steps from it to every contribution. Settings other than those of an attribution are omitted."""
    from pellucid.explanation.tracing import write_trace
    from pellucid.interpretability.attribution import trace_attribution

    if prompt is None:
        prompt, _ = make_own_prompt(model)
    prompted = _prompt(model, SpecificationRunner(model.config, model.weights), prompt)
    known = ("token", "against", "position")
    given = {
        name: _convert(model, prompted.runner, name, settings[name]) for name in known if name in settings
    }
    write_trace(model, trace_attribution(prompted, **given), Path(path), force)


def _prompt(model: Model, runner: Runner, prompt: Prompt | None) -> PromptedModel:
    ids = () if prompt is None else tuple(model.encode(parse_prompt(model, prompt)))
    tokenizer = model.pretrained.tokenizer

    def show_token(id: int) -> str:
        return str(id) if tokenizer is None or id >= tokenizer.vocab_size else tokenizer.visible(id)

    return PromptedModel(
        model.short_name, runner, ids, show_token, tokenizer, tuple(model.pretrained.bos_ids)
    )


def _convert(model: Model, runner: Runner, name: str, value: Any) -> Any:
    """Returns a setting as the views take it: a token as its id, another prompt as a prompted model."""
    if name == "corrupted":
        return _prompt(model, runner, value)
    if name in ONE_TOKEN and value is not None:
        return find_token(model.pretrained.tokenizer, name, value)
    if name in SEVERAL_TOKENS and value is not None:
        return [find_token(model.pretrained.tokenizer, name, token) for token in value]
    if name in SEVERAL_PROMPTS and value is not None:
        return [model.encode(parse_prompt(model, text)) for text in value]
    if name == "head" and isinstance(value, str):
        layer, dot, head = value.partition(".")
        if not (dot and layer.isdecimal() and head.isdecimal()):
            raise UsageError(f"head={value} must be LAYER.HEAD, such as 3.0.")
        return int(layer), int(head)
    return value
