"""Pieces of text with the tokens that they show: however a text is cut, both are the same in the end."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.generation.answers.alignment import ChoicePieces, score_prompt, to_scored
from pellucid.generation.answers.lines import Piece, ScoredToken
from pellucid.generation.output import Output
from pellucid.generation.request import Token
from pellucid.generation.samplers.own_probabilities import TokenUncertainty
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Tokenizer

LETTERS = "aEND→é😀 "


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Of bytes, with a few merged pairs: stop texts and characters lie across the borders of tokens."""
    return train("bpe", [LETTERS * 3, "ENDaEND Na"] * 4, vocab_size=266)


def emit(
    tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str], most: int, ends: Sequence[int] = ()
) -> list[Token]:
    """The tokens that the engine emits for these ids."""
    output, tokens = Output(0, tokenizer, [], ends, stop, most), list[Token]()
    for id in ids:
        if output.finish is None:
            offset, text = output.n_decoded, output.append(id)
            tokens.append(Token(0, id, text, -1.0, None, offset, output.finish, output.is_cut))
    return tokens


def cut(tokens: Sequence[Token], sizes: Sequence[int], lists_tokens: bool = True) -> list[Piece]:
    """The pieces of tokens that come in groups of these sizes."""
    choice, pieces, at = ChoicePieces(7, 0, lists_tokens), list[Piece | None](), 0
    for size in [*sizes, len(tokens)]:
        if some := tokens[at : at + size]:
            pieces.append(choice.add(some))
        at += size
    assert choice.has_ended
    return [piece for piece in pieces if piece is not None]


def join(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def list_ids(pieces: Sequence[Piece]) -> list[int]:
    return [token.id for piece in pieces for token in piece.tokens or ()]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_pieces_are_the_whole_text_however_they_are_cut(tokenizer: Tokenizer, data: st.DataObject) -> None:
    text = data.draw(st.text(LETTERS, max_size=20))
    stop = data.draw(st.lists(st.sampled_from(["END", "→é", "a", " ", "DaE", "😀"]), max_size=2, unique=True))
    ids = [*tokenizer.encode(text), 0]
    tokens = emit(tokenizer, ids, stop, data.draw(st.integers(1, len(ids))))
    sizes = data.draw(st.lists(st.integers(1, 3), max_size=len(tokens)))
    pieces, single = cut(tokens, sizes), cut(tokens, [1] * len(tokens))
    whole = cut(tokens, [len(tokens)])[0]
    decoder, offset = tokenizer.decode_stream(), 0
    for token in tokens:
        assert token.offset == offset, "held back or not, the characters before it are counted"
        offset += len(decoder.feed(token.id))
    assert join(pieces) == join(single) == whole.text == "".join(token.text for token in tokens)
    assert list_ids(pieces) == list_ids(single) == list_ids([whole])
    assert sum(piece.new_tokens for piece in pieces) == len(tokens)
    assert [piece.finish for piece in pieces] == [None] * (len(pieces) - 1) + [tokens[-1].finish]
    assert all(one not in join(pieces) for one in stop) or not tokens[-1].is_cut
    length = 0
    for piece in pieces:
        length += len(piece.text)
        is_last = piece.finish is not None
        assert all(token.offset < length or is_last for token in piece.tokens or ())
    if not tokens[-1].is_cut:
        assert list_ids(pieces) == [token.id for token in tokens]
    else:
        assert list_ids(pieces) == [token.id for token in tokens if token.offset < length]


def test_no_piece_ends_inside_a_character(tokenizer: Tokenizer) -> None:
    ids = [_find(tokenizer, byte) for byte in "a😀é".encode()]
    pieces = cut(emit(tokenizer, ids, (), len(ids)), [1] * len(ids))
    assert [piece.text for piece in pieces] == ["a", "😀", "é"]
    assert [len(piece.tokens or ()) for piece in pieces] == [1, 4, 2]
    assert [piece.new_tokens for piece in pieces] == [1, 4, 2]


def _find(tokenizer: Tokenizer, byte: int) -> int:
    return next(id for id in range(tokenizer.vocab_size) if tokenizer.bytes_of(id) == bytes([byte]))


def test_tokens_of_a_stop_text_are_counted_and_not_listed(tokenizer: Tokenizer) -> None:
    ids = [_find(tokenizer, byte) for byte in b"aEND"]
    pieces = cut(emit(tokenizer, ids, ["END"], 9), [1] * 4)
    assert join(pieces) == "a" and list_ids(pieces) == ids[:1]
    assert sum(piece.new_tokens for piece in pieces) == 4 and pieces[-1].finish == "stop"


def test_a_token_partly_in_a_stop_text_is_listed() -> None:
    tokens = [Token(0, 5, "ab", offset=0, finish="stop", is_cut=True)]
    assert list_ids(cut(tokens, [1])) == [5]


def test_an_end_token_is_listed(tokenizer: Tokenizer) -> None:
    first, second = _find(tokenizer, 97), _find(tokenizer, 98)
    pieces = cut(emit(tokenizer, [first, second], ["bb"], 9, [second]), [1, 1])
    assert list_ids(pieces) == [first, second] and join(pieces) == "a"


def test_what_only_begins_like_a_stop_text_comes_late_with_its_tokens(tokenizer: Tokenizer) -> None:
    ids = [_find(tokenizer, byte) for byte in b"ENa"]
    pieces = cut(emit(tokenizer, ids, ["END"], 3), [1, 1, 1])
    assert [(piece.text, len(piece.tokens or ())) for piece in pieces] == [("ENa", 3)]


def test_a_request_without_numbers_lists_no_tokens(tokenizer: Tokenizer) -> None:
    pieces = cut(
        [*emit(tokenizer, tokenizer.encode("aND"), (), 99), Token(0, 0, "", finish="stop")], [], False
    )
    assert [piece.tokens for piece in pieces] == [None]


def test_a_text_that_no_token_ended_releases_its_tokens() -> None:
    choice = ChoicePieces(7, 1, True)
    assert choice.add([Token(1, 3, "", offset=0)]) is None
    last = choice.end("length")
    assert (last.choice, last.new_tokens, last.finish) == (1, 1, "length") and list_ids([last]) == [3]


def test_numbers_come_with_the_tokens_and_are_numbers_of_json() -> None:
    uncertainty = TokenUncertainty(1.5, 3, math.inf)
    found = to_scored(Token(0, 5, "a", -math.inf, top=((1, -0.5), (5, -1e5)), uncertainty=uncertainty))
    assert found == ScoredToken(5, 0, -9999.0, ((1, -0.5), (5, -9999.0)), 1.5, 3, 9999.0)


def test_the_tokens_of_a_prompt_have_the_offsets_of_their_text(tokenizer: Tokenizer) -> None:
    text = "a→END é😀a"
    ids = [_find(tokenizer, byte) for byte in text.encode()]
    tops = [((1, -0.5),)] * (len(ids) - 1)
    found = score_prompt(tokenizer, ids, [-0.5] * (len(ids) - 2) + [-math.inf], tops)
    starts = [len(text.encode()[:place].decode(errors="ignore")) for place in range(len(ids))]
    assert [token.offset for token in found] == starts
    assert (found[0].logprob, found[0].top) == (None, ()) and found[-1].logprob == -9999.0
    assert [token.offset for token in score_prompt(None, [1, 2], [-1.0], [])] == [0, 0]
