"""`pellucid.explain`: where a number came from, of a model on a prompt, of a trace, or of a training run."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pellucid.base.arguments import check_bool, check_function, check_type
from pellucid.base.errors import UsageError
from pellucid.base.names import asks_for_heads
from pellucid.explanation import derive
from pellucid.explanation.derive import Derivation, check_limits
from pellucid.explanation.trace import Trace
from pellucid.explanation.tracing import read_trace, trace
from pellucid.formats.resolve import is_run, resolve
from pellucid.model import Model, load
from pellucid.text.prompts import Prompt

if TYPE_CHECKING:
    from pellucid.explanation.shapes import Shapes
    from pellucid.explanation.table import Slice
    from pellucid.generation.ledger.explain_token import TokenNumber
    from pellucid.generation.ledger.ledger import Ledger
    from pellucid.verification.runs.explain_run import RunNames, RunNumber

    Explanation = Derivation | Slice | Trace | Shapes | RunNumber | RunNames | TokenNumber | Ledger
    """Print it to read it; `to_lines` and `to_data` give it as text and as plain data."""


@overload
def explain(
    model: "Model | Trace | str | os.PathLike[str]",
    prompt: Prompt | Sequence[Prompt],
    at: str,
    *,
    depth: int = 3,
    top: int = 6,
    lines: int | None = 40,
    **run: Any,
) -> "Derivation | Slice": ...


@overload
def explain(
    model: "Model | Trace | Ledger | str | os.PathLike[str]",
    prompt: Prompt | Sequence[Prompt] | None = None,
    at: str | None = None,
    **more: Any,
) -> "Explanation": ...


def explain(
    model: "Model | Trace | Ledger | str | os.PathLike[str]",
    prompt: Prompt | Sequence[Prompt] | None = None,
    at: str | None = None,
    *,
    depth: int = 3,
    top: int = 6,
    lines: int | None = 40,
    flatten: bool = False,
    tokens: int | None = None,
    batch: int | None = None,
    progress: Callable[[int, int], None] = lambda step, last: None,
    raw_tokens: bool = False,
    weights: str | None = None,
    token: int | None = None,
    choice: int = 0,
    ledger_model: Model | str | None = None,
    say: Callable[[str], None] = lambda text: None,
    **run: Any,
) -> "Explanation":
    """Returns where a number came from: print it, or walk its operands.

    `at` is the address of a number, "probs[t=1,v=2]", or of a table of numbers, "blocks.5.attn.pattern[h=3]".
    Operands are followed for `depth` steps, long sums show their `top` largest terms, and the text has at
    most `lines` lines (None: all). With `flatten`, an operand of an addition that is itself an addition is
    replaced by its operands: the residual stream becomes the sum of everything that was written to it.
    Without `at`, the names of all values are returned.

    With a prompt, `run` holds the other arguments of `trace`, and `weights` says how a model that is loaded
    here holds its matrices ("int8", "int4" or "file"), as for `load`. Without one, `model` is a trace or its
    file; the folder of a training run, where `at` is NAME@k after update k, and `progress` is called for each
    replayed step; or a model or a config-only preset, whose shapes are returned for `batch` rows of `tokens`
    tokens. Of a ledger or its file, `token` is the number of a new token, from 1, and `at` by default the
    probability with which it was drawn: the run of its model, or of `ledger_model`, is explained through the
    samplers and the logits. Without `token`, the ledger is returned.

    >>> import pellucid
    >>> found = pellucid.explain("abcd", "A B", at="logits[t=1,v=2]")
    >>> print(f"{found.value:.5f}: {found.formula}")
    0.80443: ℓ[t,v] = Σ_c O[t,c] W_U[c,v]
    >>> [operand.address for operand in found.operands]
    ['blocks.0.attn_out[t=1,c=1]', 'unembed.weight[v=2,c=1]']
    >>> pellucid.explain("gpt2", tokens=4, batch=2).values()["logits"]
    (2, 4, 50257)
    """
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    check_limits("" if at is None else at, depth, top, lines)
    check_bool("flatten", flatten)
    check_bool("raw_tokens", raw_tokens)
    check_function("progress", progress)
    check_function("say", say)
    if weights is not None:
        model = _load_with(model, weights, prompt)
    if (ledger := _read_ledger(model, token is not None)) is not None:
        given = {**run, "prompt": prompt, "tokens": tokens, "batch": batch, "raw_tokens": raw_tokens or None}
        if names := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"a ledger holds its own run: omit {names[0]}.")
        if token is None:
            if at is not None:
                raise UsageError(f"which token is meant? Give token=1 with at={at!r}.")
            return ledger
        from pellucid.generation.ledger.explain_token import explain_token

        return explain_token(
            ledger,
            token,
            at,
            choice=choice,
            model=ledger_model,
            depth=depth,
            top=top,
            lines=lines,
            flatten=flatten,
            say=say,
        )
    if token is not None or ledger_model is not None:
        from pellucid.generation.ledger.file import check_not_page

        check_not_page(Path(str(model)))
        raise UsageError("token and ledger_model are for a ledger: omit them, or give a ledger's file.")
    if prompt is not None:
        if tokens is not None or batch is not None:
            raise UsageError("tokens and batch are for shapes without a prompt: omit them, or the prompt.")
        if _is_trace(model):
            raise UsageError("a trace holds its own run: omit the prompt.")
        if run.get("target") is not None and not run.get("update"):
            run = {"backward": True} | run
        if at is not None and asks_for_heads(at):
            run = {"by_head": True} | run
        found = trace(model, prompt, raw_tokens=raw_tokens, **run)  # type: ignore[arg-type]
    elif _is_trace(model):
        given = {**run, **({"raw_tokens": True} if raw_tokens else {}), "tokens": tokens, "batch": batch}
        if names := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"a trace holds its own run: omit {names[0]}.")
        found = model if isinstance(model, Trace) else read_trace(model)  # type: ignore[arg-type]
    elif not run and tokens is None and isinstance(model, str) and is_run(model):
        from pellucid.verification.runs.explain_run import explain_run

        return explain_run(model, at, depth, top, lines, raw_tokens, progress, flatten)
    else:
        return _shapes(model, at, tokens, batch, run)
    return found if at is None else derive.explain(found, at, depth, top, lines, flatten)


def _load_with(model: Any, weights: str, prompt: Any) -> Model:
    """Returns the model with its matrices held as asked."""
    if prompt is None or not isinstance(model, str) or _is_trace(model):
        raise UsageError("weights is for a model that is loaded here, and needs a prompt: omit it.")
    return load(model, weights=weights)


def _read_ledger(model: Any, is_asked: bool) -> "Ledger | None":
    """Returns the ledger that is given, or whose file is; None where it is something else, unless a ledger
    is asked for."""
    if isinstance(model, Model | Trace) or (isinstance(model, str) and not model.endswith(".json")):
        return None
    from pellucid.generation.ledger.file import is_ledger
    from pellucid.generation.ledger.ledger import Ledger

    if isinstance(model, str):
        return Ledger.read(model) if is_asked or is_ledger(Path(model)) else None
    return check_type("model", model, Ledger, "a model, a trace, a ledger or the path of one")


def _is_trace(model: Any) -> bool:
    return isinstance(model, Trace) or (isinstance(model, str) and model.endswith(".json"))


def _shapes(
    model: Any, at: str | None, tokens: int | None, batch: int | None, run: Mapping[str, Any]
) -> "Shapes":
    """Returns the shapes of a model or preset; raises where numbers are asked for, which need a prompt."""
    reference = None if isinstance(model, Model) else resolve(model)
    name = model.name if isinstance(model, Model) else str(model)
    if at is None and (tokens is not None or (reference and reference.is_config_only)):
        if run:
            raise UsageError(f"shapes depend on the model alone: omit {min(run)}, or give a prompt.")
        from pellucid.explanation.shapes import make_shapes

        return make_shapes(name, model.config if reference is None else reference.config(), tokens, batch)
    if reference and reference.is_config_only:
        raise UsageError(
            f"{name} is a config-only preset, so there are no numbers to explain: `pellucid explain {name}` "
            'shows its parameters and cost, `pellucid explain abcd "A B"` numbers.'
        )
    from pellucid.explanation.example_command import propose_command

    raise UsageError(f"{name} needs a prompt, for example: {propose_command('explain', model)}")
