"""`session`: the model, its traces, and the run that is being computed."""

import json
import shlex
from typing import Any

from pellucid.base.formatting import escape_controls
from pellucid.server.explorer.held_trace import RunRequest, TraceSummary
from pellucid.server.explorer.session import Session, shorten_path

LARGEST = 200_000
"""Bytes of the traces of an answer, about."""
MOST_TOKENS = 4096
"""Tokens of a trace that are listed: a file may hold any number."""


def answer(session: Session) -> dict[str, Any]:
    """Returns the sizes of the model, prompts to begin with, every trace with its tokens and edits, and the
    progress of the run that is being computed.

    Of very many traces only the newest are listed; `omitted` counts the others. `gradients` is what
    gradients of the newest prompt would take, None where that is next to nothing; the `command` of a trace is
    None where no command line can give its token ids.
    """
    return {
        "model": escape_controls(session.name, keep=""),
        "source": session.kind,
        **session.sizes,
        "has_tokenizer": session.model is None or session.model.pretrained.tokenizer is not None,
        "presets": session.presets,
        **_list_traces(session),
        "busy": _describe_progress(session),
        "failed": None if session.failed is None else {"message": session.failed},
        "most_tokens": session.most_tokens,
        "gradients": session.estimate_gradients(),
        "is_exported": False,
    }


def _list_traces(session: Session) -> dict[str, Any]:
    """Returns the newest traces, as many as fit into the answer, and the number of older ones."""
    found: list[dict[str, Any]] = []
    summaries, room = list(session.summaries.values()), LARGEST
    for summary in reversed(summaries):
        found.append(_describe_trace(session, summary))
        room -= len(json.dumps(found[-1]))
        if room < 0:
            break
    return {"traces": found[::-1], "omitted": len(summaries) - len(found)}


def _describe_progress(session: Session) -> dict[str, Any] | None:
    """Returns how far the run is; before its first step, how many weights have been read."""
    progress, weights = session.progress, session.weights
    if progress is None or weights is None:
        return None
    step = progress.step  # of tiled attention there may be more than were foreseen
    found = {"what": progress.what, "step": step, "steps": max(step, progress.steps)}
    if not step:
        found = {"what": "reading weights", "step": weights.read_count, "steps": len(weights)}
    return found | {"seconds": progress.elapsed, "tokens": session.label_tokens(progress.ids)}


def _describe_trace(session: Session, summary: TraceSummary) -> dict[str, Any]:
    request = summary.request
    return {
        "id": summary.id,
        "parent": summary.parent,
        "edits": summary.edits,
        "tokens": session.label_tokens(summary.ids[:MOST_TOKENS]),
        "prompt": None if request is None else session.write_prompt(request.prompt),
        "target": None if request is None else session.write_prompt(request.target),
        "has_target": request is not None and request.target is not None,
        "prompts": summary.prompts,
        "update": request.update if request else None,
        "lr": request.lr if request else None,
        "has_gradients": summary.has_gradients,
        "updates": summary.updates,
        "values": summary.values,
        "steps": summary.steps,
        "command": format_command(session, request),
        "is_editable": request is not None,
        "path": summary.path,
    }


def format_command(session: Session, request: RunRequest | None) -> str | None:
    """Returns the command that explains a number of the trace; None where ids, edits or an update of
    quantized weights cannot be given there, and of a trace without a file. Of a path, it has the last part
    alone."""
    if not session.source or (request and (request.edits or (request.update and session.has_integers))):
        return None
    words = ["pellucid", "explain", shorten_path(session.source)]
    held_as = [] if session.held_as is None else [f"--weights={session.held_as}"]
    if request is None:
        return f"{shlex.join(words)} --at ADDRESS"
    prompt, target = session.write_prompt(request.prompt), session.write_prompt(request.target)
    if prompt is None or (target is None and request.target is not None):
        return None
    options = held_as
    if target is not None:
        options.append(f"--target={target}")
    if request.update is not None:
        options.append(f"--update={request.update}")
        options += [] if request.lr is None else [f"--lr={request.lr!r}"]
        options += [f"--steps={request.steps}"] if request.steps > 1 else []
    if prompt.startswith("-"):  # it is not an option
        return f"{shlex.join([*words, *options])} --at ADDRESS -- {shlex.quote(prompt)}"
    return f"{shlex.join([*words, prompt, *options])} --at ADDRESS"
