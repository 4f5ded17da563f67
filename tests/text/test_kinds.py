"""Every kind: there and back, the same ids as the libraries that read its file, and nothing half-said."""

import json
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
import transformers

from pellucid.base.errors import ConfigError, FileError, TokenError
from pellucid.text.from_files import from_pretrained
from pellucid.text.kinds import kinds, train
from pellucid.text.standard import LONG_TEXT, StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer
from tests.text.sample_texts import STORY, fingerprints, gpt2_tokenizer, strings, trained

BYTE_LEVEL = ("bpe", "bytes", "unigram")


@pytest.fixture(params=kinds())
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return trained(request.param)


def readable(tokenizer: Tokenizer, text: str) -> str:
    """The text less what the kind never saw; only characters have no token for it."""
    if tokenizer.kind != "characters":
        return text
    return "".join(letter for letter in text if letter in set(STORY))


# ---- there and back


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.torture)])
def test_any_string_comes_back(kind: str, count: int) -> None:
    tokenizer = trained(kind)
    for text in strings(count):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@pytest.mark.parametrize("count", [2_000, pytest.param(1_000_000, marks=pytest.mark.torture)])
def test_any_bytes_come_back(kind: str, count: int) -> None:
    tokenizer, draw = trained(kind), random.Random(1)
    assert isinstance(tokenizer, StandardTokenizer)
    for _ in range(count):
        data = draw.randbytes(draw.randrange(16))
        assert tokenizer.decode_bytes(tokenizer.encode_bytes(data)) == data


def test_known_text_comes_back_where_the_kind_keeps_white_space() -> None:
    assert trained("characters").decode(trained("characters").encode(STORY)) == STORY
    words = train("words", [STORY], 100_000)
    assert words.decode(words.encode(STORY)) == " ".join(STORY.split())


def test_nothing_has_no_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.offsets("") == []


def test_half_a_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenError, match=r"character 1 .*surrogate"):
        tokenizer.encode("a\ud800b")


@pytest.mark.parametrize("id", [-1, 10**9])
def test_an_id_that_no_token_has_is_refused(tokenizer: Tokenizer, id: int) -> None:
    with pytest.raises(TokenError, match=f"id {id};"):
        tokenizer.decode([id])
    with pytest.raises(TokenError):
        tokenizer.token(id)


# ---- streaming


def test_pieces_of_a_stream_are_the_decoded_text(tokenizer: Tokenizer) -> None:
    for text in (STORY[:400], *(readable(tokenizer, text) for text in strings(60, seed=2))):
        ids, stream = tokenizer.encode(text), tokenizer.decode_stream()
        pieces = [*(stream.feed(id) for id in ids), stream.end()]
        assert "".join(pieces) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_a_stream_never_gives_half_a_character(kind: str) -> None:
    tokenizer = trained(kind)
    for text in ("王様は猫が好き", "🐈‍⬛ 🐈", "aé" * 9):
        stream = tokenizer.decode_stream()
        assert all("\ufffd" not in stream.feed(id) for id in tokenizer.encode(text))


def with_decoder(decoder: tokenizers.decoders.Decoder, tokens: list[str]) -> StandardTokenizer:
    """Returns a tokenizer as other programs write them, with another decoder than those trained here."""
    vocab = {token: id for id, token in enumerate(dict.fromkeys(["<unk>", *tokens]))}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "<unk>"))
    library.decoder = decoder
    return StandardTokenizer(library.to_str(), Special())


decoders = tokenizers.decoders
BYTES = [f"<0x{byte:02X}>" for byte in (*range(0x41, 0x45), 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xFF)]
PIECES = ["▁", "▁the", "▁cat", "s", ".", "é", "�", " ", "▁▁"]
LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
LETTERS = [*"ĠabĊÃ©âĤ¬ÿ", "Ġthe", "Ã©s"]
OTHERS: dict[str, tuple[tokenizers.decoders.Decoder, list[str]]] = {
    "sentencepiece": (decoders.Sequence(LLAMA), PIECES + BYTES),
    "metaspace": (decoders.Metaspace(), PIECES),
    "suffix": (decoders.BPEDecoder(), ["the</w>", "c", "at</w>", "s</w>"]),
    "byte-level in a sequence": (decoders.Sequence([decoders.ByteLevel()]), LETTERS),
}
streamed = pytest.mark.parametrize("kind", [*kinds(), *OTHERS])


def streamed_tokenizer(kind: str) -> Tokenizer:
    return with_decoder(*OTHERS[kind]) if kind in OTHERS else trained(kind)


def run_stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.decode_stream()
    return [*(stream.feed(id) for id in ids), stream.end()]


@streamed
def test_a_stream_of_any_ids_is_the_decoded_text(kind: str) -> None:
    tokenizer, draw = streamed_tokenizer(kind), random.Random(3)
    for _ in range(200):
        ids = [draw.randrange(tokenizer.vocab_size) for _ in range(draw.randrange(40))]
        assert "".join(run_stream(tokenizer, ids)) == tokenizer.decode(ids)


def test_bytes_of_a_run_that_is_not_utf8_are_decoded_as_the_library_decodes_all_of_it() -> None:
    tokenizer = streamed_tokenizer("sentencepiece")
    ids = [tokenizer.id_of(token) or 0 for token in ("▁the", "<0xC3>", "<0xA9>", "<0xFF>", "▁cat", "s")]
    assert run_stream(tokenizer, ids) == ["the", "", "", "", "\ufffd" * 3 + " cat", "s", ""]
    assert run_stream(tokenizer, ids[:3] + ids[4:]) == ["the", "", "", "é cat", "s", ""]


class Counting:
    """Counts the tokens that the library decodes."""

    def __init__(self, tokenizer: StandardTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, decode = 0, tokenizer.decode

        def counted(ids: list[int]) -> str:
            self.count += len(ids)
            return decode(ids)

        monkeypatch.setattr(tokenizer, "decode", counted)


@streamed
def test_the_work_of_a_stream_grows_with_its_length(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any ids, and for the one token again and again that keeps a decoder waiting longest."""
    tokenizer, draw = streamed_tokenizer(kind), random.Random(5)
    if not isinstance(tokenizer, StandardTokenizer) or tokenizer.byte_level:
        ids = [draw.randrange(tokenizer.vocab_size) for _ in range(500)]
        monkeypatch.setattr(type(tokenizer), "decode", None)  # never called: each token is decoded by itself
        run_stream(tokenizer, ids)
        return
    counting = Counting(tokenizer, monkeypatch)
    last = tokenizer.vocab_size - 1
    for ids in ([draw.randrange(last + 1) for _ in range(500)], [last] * 500):
        counting.count = 0
        run_stream(tokenizer, ids)
        assert counting.count < 20 * len(ids)


# ---- special tokens


def test_special_tokens_in_a_text_are_text_unless_asked(tokenizer: Tokenizer) -> None:
    end = tokenizer.id_of("<end>")
    assert end is not None
    if tokenizer.kind == "characters":
        tokenizer = train("characters", [STORY, "<end>"])
        end = tokenizer.id_of("<end>")
    assert end not in tokenizer.encode("cat<end>cat")
    assert tokenizer.encode("cat<end>cat", parse_special=True).count(end) == 1
    assert tokenizer.special == Special("<end>", "<end>", "<pad>")


# ---- places


def test_offsets_are_where_the_bytes_stand(tokenizer: Tokenizer) -> None:
    text = readable(tokenizer, STORY[:300])
    places, data = tokenizer.offsets(text), text.encode()
    ids = tokenizer.encode(text)
    assert len(places) == len(ids)
    assert all(0 <= start < end <= len(data) for start, end in places)
    assert all(a[1] <= b[0] for a, b in pairwise(places))
    for id, (start, end) in zip(ids, places, strict=True):
        token = tokenizer.bytes_of(id).removeprefix(b"##")
        assert data[start:end] == token or token in (b"<unk>", b"[UNK]")
    if tokenizer.kind in (*BYTE_LEVEL, "characters"):
        assert b"".join(data[start:end] for start, end in places) == data


# ---- files


def test_a_saved_tokenizer_is_the_same_for_us_and_for_others(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    ours = from_pretrained(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.encode_special_tokens = True
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (ours.kind, ours.vocab_size, ours.special) == (
        tokenizer.kind,
        tokenizer.vocab_size,
        tokenizer.special,
    )
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == ("<end>", "<end>", "<pad>")
    for text in (STORY, *(readable(tokenizer, text) for text in strings(150, seed=4))):
        if tokenizer.kind == "words" and {"<end>", "<pad>", "<unk>"} & set(text.split()):
            continue  # for others a special word is a word of the list; for us it is not the user's to say
        ids = tokenizer.encode(text)
        assert ours.encode(text) == ids
        assert library.encode(text, add_special_tokens=False).ids == ids
        assert library.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)
        if "<" not in text:
            assert theirs.encode(text, add_special_tokens=False) == ids


def test_tiktoken_and_tokenizers_give_the_same_ids() -> None:
    tokenizer = trained("bpe")
    assert isinstance(tokenizer, StandardTokenizer)
    assert tokenizer.split is not None, "the fast path is taken"
    for text in (STORY, *strings(1_000, seed=5)):
        assert tokenizer.encode(text) == tokenizer.library.encode(text, add_special_tokens=False).ids


def test_a_bpe_merged_in_another_order_than_its_ids_is_left_to_its_library() -> None:
    file = json.loads(trained("bpe").text)  # type: ignore[attr-defined]
    file["model"]["merges"] = file["model"]["merges"][::-1]
    tokenizer = StandardTokenizer(json.dumps(file), Special())
    assert tokenizer.split is None
    assert tokenizer.decode(tokenizer.encode(STORY)) == STORY


def test_a_file_with_a_letter_that_is_not_a_byte_is_left_to_its_library() -> None:
    file = json.loads(trained("bpe").text)  # type: ignore[attr-defined]
    file["model"]["vocab"]["漢"] = len(file["model"]["vocab"])
    tokenizer = StandardTokenizer(json.dumps(file), Special())
    assert not tokenizer.byte_level
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"


def test_gpt2_reads_the_cat_as_gpt2_does() -> None:
    gpt2 = gpt2_tokenizer()
    assert gpt2.vocab_size == 50257
    assert gpt2.encode("The cat sat on") == [464, 3797, 3332, 319]
    assert gpt2.encode("hello world") == [31373, 995]
    assert [gpt2.token(2415), gpt2.token(262)] == ["Ġwoman", "Ġthe"]
    assert gpt2.encode("<|endoftext|>", parse_special=True) == [50256]
    assert 50256 not in gpt2.encode("<|endoftext|>")


def test_gpt2_s_files_become_a_standard_folder(tmp_path: Path) -> None:
    gpt2 = gpt2_tokenizer()
    gpt2.save(tmp_path)
    ours, theirs = from_pretrained(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (STORY, *strings(100, seed=6)):
        assert ours.encode(text) == gpt2.encode(text)
        assert theirs.encode(text, add_special_tokens=False) == gpt2.encode(text)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", "{", "is not JSON"),
        ("tokenizer.json", "[]", "it is not a table"),
        ("tokenizer.json", "{}", "not a tokenizer that can be used"),
        (
            "tokenizer.json",
            '{"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}',
            "that can be used",
        ),
        (
            "tokenizer_config.json",
            '{"pellucid": {"format": 2}}',
            "tokenizer format 2; this version of Pellucid reads 1",
        ),
        ("tokenizer_config.json", '{"eos_token": "<nowhere>"}', "has no token '<nowhere>'"),
    ],
)
def test_a_foreign_or_damaged_folder_gets_one_clear_error(
    name: str, content: str, words: str, tmp_path: Path
) -> None:
    for kind in ("bpe", "words"):
        trained(kind).save(tmp_path / kind)
        (tmp_path / kind / name).write_text(content, "utf-8")
        with pytest.raises(FileError) as error:
            from_pretrained(tmp_path / kind)
        assert words in str(error.value)


def test_a_hostile_pattern_is_an_error_and_no_panic(tmp_path: Path) -> None:
    trained("bpe").save(tmp_path)
    file = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    file["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(((("},
        "behavior": "Isolated",
        "invert": False,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), "utf-8")
    with pytest.raises(FileError, match="not a tokenizer that can be used"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("count", [150, pytest.param(5_000, marks=pytest.mark.torture)])
def test_a_changed_file_is_a_tokenizer_or_a_file_error(count: int, tmp_path: Path) -> None:
    draw, refused = random.Random(7), 0
    for kind in ("words", "bpe", "unigram"):
        folder = tmp_path / kind
        trained(kind).save(folder)
        whole = (folder / "tokenizer.json").read_bytes()
        for _ in range(count // 3):
            changed = bytearray(whole)
            for _ in range(draw.randrange(1, 4)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            (folder / "tokenizer.json").write_bytes(changed)
            try:
                found = from_pretrained(folder)
                found.decode(found.encode("the cat"))
            except (FileError, TokenError):
                refused += 1
    assert count / 4 < refused < count


# ---- training


@pytest.mark.parametrize("threads", ["1", "2"])
def test_training_does_not_depend_on_the_number_of_threads(threads: str) -> None:
    script = "from tests.text.sample_texts import fingerprints; print(*fingerprints())"
    root = Path(__file__).parents[2]
    environment = os.environ | {"RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert tuple(done.stdout.split()) == fingerprints()


def test_training_refuses_what_cannot_be() -> None:
    for kind, size, words in (
        ("bpe", 100, "a vocabulary of 100 is too small: 256 bytes and the special tokens take 258"),
        ("bpe", 0, "vocab_size=0 is out of range"),
        ("bpe", 10**9, "vocab_size=1,000,000,000 is out of range: use 1 to 16,777,216"),
        ("unigram", 10**11, "is out of range"),
        ("bytes", 2**24 + 1, "is out of range"),
        ("bpee", 400, "'bpee'"),
    ):
        with pytest.raises(ConfigError, match=words):
            train(kind, [STORY], size)
    for kind in ("words", "characters"):
        with pytest.raises(ConfigError, match="in the text to train on"):
            train(kind, [])


def test_words_keep_the_most_frequent_and_name_the_rest_unknown() -> None:
    words = train("words", ["b a a c c c"], 5)
    assert words.decode(words.encode("c a b")) == "c a <unk>"


def test_characters_that_were_never_seen_are_named() -> None:
    with pytest.raises(TokenError, match="'@'"):
        trained("characters").encode("a@b")


@pytest.mark.timed
def test_a_million_of_one_letter_is_encoded_in_linear_time() -> None:
    times = []
    for length in (250_000, 500_000, 1_000_000):
        start = time.perf_counter()
        trained("bpe").encode("a" * length)
        times.append(time.perf_counter() - start)
    assert times[-1] < 1
    assert times[2] < 8 * times[0]


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize("parse_special", [False, True])
def test_a_long_text_has_the_ids_of_the_library(kind: str, parse_special: bool) -> None:
    tokenizer = trained(kind)
    assert isinstance(tokenizer, StandardTokenizer)
    text = "the cat <end> sat 12\n" * (LONG_TEXT // 20)
    assert len(text) > LONG_TEXT
    library = tokenizers.Tokenizer.from_str(tokenizer.text)
    library.encode_special_tokens = not parse_special
    assert tokenizer.encode(text, parse_special) == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe", "unigram", "words", "wordpiece"])
def test_no_token_stands_for_more_than_the_longest_token(kind: str) -> None:
    """Texts of one token's bytes, over and over, have at least so many tokens; words drop blanks."""
    tokenizer = trained(kind)
    longest = tokenizer.longest_token
    assert (longest is None) == (kind in ("words", "wordpiece"))
    for text in (STORY, *(tokenizer.decode([id]) * 9 for id in range(tokenizer.vocab_size))):
        try:
            count = len(tokenizer.encode(text))
        except TokenError:
            continue
        assert longest is None or count * longest >= len(text.encode())


@pytest.mark.parametrize("kind", ["bytes", "characters", "words", "wordpiece"])
def test_special_tokens_are_found_by_name(kind: str) -> None:
    tokenizer = trained(kind)
    names = tokenizer.special_tokens
    assert set(tokenizer.special.names()) <= names.keys()
    assert all(tokenizer.token(id) == name for name, id in names.items())


def test_a_text_that_is_too_much_for_the_faster_encoder_is_encoded_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Overflowing:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("StackOverflow")

    tokenizer = train("bpe", [STORY], 300)
    assert isinstance(tokenizer, StandardTokenizer) and tokenizer._fast is not None
    wanted = tokenizer.encode("the cat <end>"), tokenizer.encode("the cat <end>", parse_special=True)
    monkeypatch.setitem(vars(tokenizer), "_fast", Overflowing())
    assert (tokenizer.encode("the cat <end>"), tokenizer.encode("the cat <end>", True)) == wanted
    assert tokenizer.encode_array("the cat <end>").tolist() == wanted[0]


def test_many_ids_are_decoded_as_few_are_and_while_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library lets go of the interpreter for a batch, and not for one text."""
    tokenizer = trained("wordpiece")
    assert isinstance(tokenizer, StandardTokenizer) and not tokenizer.byte_level
    ids = tokenizer.encode("the cat sat. ") * LONG_TEXT
    real, batches = tokenizer.library, list[int]()
    assert max(ids) < tokenizer.vocab_size

    class Library:
        def decode_batch(self, many: list[list[int]], **settings: bool) -> list[str]:
            batches.append(len(many))
            return real.decode_batch(many, **settings)

    monkeypatch.setattr(tokenizer, "library", Library())
    assert tokenizer.decode(ids) == real.decode(ids, skip_special_tokens=False) and batches == [1]
