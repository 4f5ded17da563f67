"""`run`: computes the trace of a prompt; the session holds it."""

from typing import Annotated, Any

from pellucid.base.errors import UsageError
from pellucid.base.schema import Length, Range
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session

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
    target_ids: Annotated[list[int], Length(MOST_CHARACTERS)] | None = None,
) -> dict[str, Any]:
    """Returns the id of the new trace: the forward pass on a prompt or on token ids, the loss where there is
    a target as text or ids, its gradients with `backward` (None: where they take next to nothing), and
    `steps` updates at the rate `lr` with `update`."""
    if (prompt is None) == (ids is None):
        raise UsageError("a run needs a prompt or ids, and not both.")
    if target is not None and target_ids is not None:
        raise UsageError("a run needs a target or target_ids, and not both.")
    wanted = target_ids if target is None else target
    given = prompt if prompt is not None else ids
    assert given is not None
    if backward is None:
        backward = wanted is not None and session.has_small_gradients(given, wanted)
    return {"trace": session.run(RunRequest(given, wanted, backward, update, lr, steps)).id}
