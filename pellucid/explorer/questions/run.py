"""`run`: computes the trace of a prompt; the session holds it."""

from typing import Annotated, Any

from pellucid.errors import UsageError
from pellucid.explorer.held_trace import RunRequest
from pellucid.explorer.question import Length, Range
from pellucid.explorer.session import Session

METHOD = "POST"
MOST_CHARACTERS = 65_536


def answer(
    session: Session,
    prompt: Annotated[str, Length(MOST_CHARACTERS)] | None = None,
    ids: Annotated[list[int], Length(MOST_CHARACTERS)] | None = None,
    target: Annotated[str, Length(MOST_CHARACTERS)] | None = None,
    backward: bool | None = False,
    update: Annotated[str, Length(64)] | None = None,
    lr: Annotated[float, Range(-1e6, 1e6)] | None = None,
    steps: Annotated[int, Range(1, 100)] = 1,
) -> dict[str, Any]:
    """Returns the id of the new trace: the forward pass on a prompt or on token ids, the loss where there is
    a target, its gradients with `backward` (None: where they take next to nothing), and `steps` updates at
    the rate `lr` with `update`."""
    if (prompt is None) == (ids is None):
        raise UsageError("a run needs a prompt or ids, and not both.")
    given = prompt if prompt is not None else ids
    assert given is not None
    if backward is None:
        backward = target is not None and session.has_small_gradients(given, target)
    return {"trace": session.run(RunRequest(given, target, backward, update, lr, steps)).id}
