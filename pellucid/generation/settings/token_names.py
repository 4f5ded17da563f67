"""Tokens of a setting by their text: " the" in place of 262."""

from collections.abc import Mapping
from typing import Any

from pellucid.base.errors import TokenError, UsageError, show
from pellucid.base.formatting import pluralize
from pellucid.base.schema import is_id
from pellucid.generation.settings.table import SETTINGS, Biases, Tokens
from pellucid.text.tokenizer import Tokenizer


def resolve_tokens(tokenizer: Tokenizer | None, table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a table of settings in which each token that is given by its text is its id.

    Digits are an id. A text must be one token, other than in `forced_tokens`, where it may be several. A
    space may be written as ·, as tokens are shown.
    """
    found = dict(table)
    for name, value in table.items():
        kind = SETTINGS[name].type if name in SETTINGS else None
        if kind == Biases and isinstance(value, Mapping):
            found[name] = {find_token(tokenizer, name, token): bias for token, bias in value.items()}
        elif kind == Tokens and isinstance(value, list | tuple | str):
            tokens = [value] if isinstance(value, str) else value
            if name == "forced_tokens":
                found[name] = [id for token in tokens for id in _find(tokenizer, name, token)]
            else:
                found[name] = [find_token(tokenizer, name, token) for token in tokens]
    return found


def find_token(tokenizer: Tokenizer | None, name: str, token: Any) -> Any:
    """Returns the id of a token that is given by its text, with · for a space, or by its id; `name` says
    where it was given."""
    ids = _find(tokenizer, name, token)
    if not ids:
        raise UsageError(
            f"{name}: {show(token)} is not in this model's vocabulary; give a token that is, or its id."
        )
    if len(ids) != 1:
        raise UsageError(
            f"{name}: {show(token)} is {pluralize(len(ids), 'token')}, {ids}, and must be one; give the ids."
        )
    return ids[0]


def _find(tokenizer: Tokenizer | None, name: str, token: Any) -> list[Any]:
    """Returns the ids of a token or a text; what is not a text stays as it is."""
    if not isinstance(token, str):
        return [token]
    if is_id(token):
        return [int(token)]
    if tokenizer is None:
        raise UsageError(f"{name}: {show(token)} is a text, and this model has no tokenizer: give ids.")
    try:
        ids = tokenizer.encode(token.replace("·", " "))
    except TokenError:
        ids = []
    if len(ids) != 1 and (special := tokenizer.id_of(token)) is not None:
        return [special]
    return list(ids)
