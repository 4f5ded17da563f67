"""`neighbors`: the tokens whose embeddings are nearest to that of a token, and where they lie in a plane."""

from typing import Annotated, Any

from pellucid.base.errors import UsageError
from pellucid.base.schema import Length, Range
from pellucid.explanation.address import parse
from pellucid.server.explorer.arithmetic import show_label
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session


def answer(
    session: Session,
    trace: HeldTrace,
    token: Annotated[int, Range(0, 2**24)],
    count: Annotated[int, Range(1, 32)] = 8,
    of: Annotated[str, Length(400)] = "embed.weight",
) -> dict[str, Any]:
    """Returns the `count` rows of a matrix [V C] with the largest cosine to the row of `token`, itself left
    out; and the coordinates of all of these rows along the two principal axes of their own."""
    from pellucid.interpretability.geometry import MATRICES, find_neighbors, find_principal_axes

    found, name = trace.trace, parse(trace.trace, of).name
    vectors = found.value(name)
    if name not in MATRICES or vectors.ndim != 2:
        raise UsageError(f"{name} is not a matrix of token vectors: give one of {' or '.join(MATRICES)}.")
    if token >= len(vectors):
        raise UsageError(f"{name} has no v={token}: v has 0…{len(vectors) - 1:,}.")
    near = find_neighbors(vectors, vectors[token], count, exclude={token})
    chosen = [token, *(one.token for one in near)]
    axes = find_principal_axes(vectors[chosen])
    places = axes.project(vectors[chosen])

    def describe(id: int) -> dict[str, Any]:
        return {"id": id, "label": show_label(found, name, "v", id), "at": found.address(name, (id, 0))}

    return {
        "matrix": name,
        "token": describe(token),
        "neighbors": [describe(one.token) | {"cosine": one.score} for one in near],
        "points": [describe(id) | {"place": place} for id, place in zip(chosen, places, strict=True)],
        "shares": axes.shares[:2],
    }
