"""llama.cpp, by way of xllamacpp, reads the files that we write as we do: tokens, probabilities, texts."""

import json
import random
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.base.quantized import Scheme
from pellucid.formats import gguf
from pellucid.formats.gguf.tokenizer import PRE_TOKENIZERS, companions_metadata
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.reference.training import forward
from pellucid.text.standard import LETTER_BYTE
from tests.formats.gguf.random_models import (
    BLOOM,
    GPT2,
    LLAMA,
    LLAMA3,
    MANY_MERGES,
    QWEN2,
    QWEN3,
    SIZE,
    YARN,
    model,
    tokenizer,
    write_with_metadata,
)
from tests.formats.gguf.test_reading import rewritten

xllamacpp = pytest.importorskip("xllamacpp")

HARMLESS = 3 + list(LETTER_BYTE).index("a")
IDS = [5, 9, 200, 31, 31, 260, 7, 100]
LONG = IDS * 5
LINEAR = {"kind": "rope_linear", "factor": 4.0}
TEXTS = [
    "the cat in the hat, 1234567 times",
    "  two  spaces\n\n\tand tabs \r\n end   ",
    "don't DON'T I'LL we've x=y+z; if (a<=b) {return $100.00;}",
    "naïve café 東京 ١٢٣ ½ ² Ⅷ 🙂‍↔️ e\u0301 \u00a0\u3000x",
    "12 123 1234 12345 a1b22c333",
    "!!!???... --- ''' \"quoted\" it's",
    "",
]


class LlamaCpp:
    """A model running in llama.cpp, with everything in float32 that can be."""

    def __init__(self, path: Path) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 256, 1, False, -1
        params.cpuparams.n_threads = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(params)

    def tokens(self, text: str, parse_special: bool = False) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": parse_special}
        request = urllib.request.Request(
            f"{self.server.listening_address}/tokenize",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return list(json.loads(answer.read())["tokens"])

    def next(self, ids: list[int], most: int) -> dict[int, float]:
        """The log-probabilities of the likeliest next tokens. A harmless token is forced to be the one
        chosen, because the server reports nothing beside half a character."""
        asked = {"prompt": ids, "n_predict": 1, "n_probs": most, "cache_prompt": False}
        answer = self.server.handle_completions(
            asked | {"temperature": 0.0, "logit_bias": [[HARMLESS, 1000.0]]}
        )
        (step,) = answer["choices"][0]["logprobs"]["content"]
        return {entry["id"]: entry["logprob"] for entry in step["top_logprobs"]}


def log_probabilities(model: Pretrained, ids: list[int]) -> np.ndarray[Any, np.dtype[Any]]:
    weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
    logits = forward(model.config, weights, [ids])["logits"][0, -1]
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


MODELS = {
    "llama": LLAMA,
    "llama in halves": LLAMA | {"positions": {"kind": "rope", "layout": "halves", "base": 500.0}},
    "llama, untied with biases": LLAMA
    | {"unembedding": "linear", "biases": ["qkv", "output", "mlp"], "n_kv_head": 1},
    "llama with wide heads": LLAMA | {"d_head": 32},
    "llama, linear": LLAMA | {"positions": LINEAR},
    "llama, yarn": LLAMA | {"positions": YARN},
    "llama, sharp yarn": LLAMA | {"positions": YARN | {"attention_factor": 1.7}},
    "llama, Llama 3": LLAMA | {"positions": LLAMA3},
    "gpt2": GPT2,
    "gpt2, untied": GPT2 | {"unembedding": "linear"},
    "qwen2": QWEN2,
    "qwen2 in pairs": QWEN2 | {"positions": {"kind": "rope", "layout": "pairs"}, "n_kv_head": 1},
    "qwen2, untied with yarn": QWEN2 | {"positions": YARN, "unembedding": "linear"},
    "qwen2, linear": QWEN2 | {"positions": LINEAR},
    "qwen3": QWEN3,
    "qwen3, untied in pairs": QWEN3
    | {"positions": {"kind": "rope", "layout": "pairs"}, "unembedding": "linear"},
    "qwen3, blunt yarn": QWEN3 | {"positions": YARN | {"attention_factor": 0.5}},
    "bloom": BLOOM,
    "bloom, untied with 6 heads": BLOOM | {"n_head": 6, "d_model": 96, "unembedding": "linear"},
}


@pytest.mark.parametrize("name", MODELS)
def test_llama_cpp_gives_the_probabilities_of_the_specification(name: str, tmp_path: Path) -> None:
    architecture = name.partition(",")[0].partition(" ")[0]
    ours = model(MODELS[name], came_from=architecture)
    gguf.write(tmp_path / "m.gguf", ours, "F32")
    assert gguf.read(tmp_path / "m.gguf").provenance.architecture == architecture
    theirs = LlamaCpp(tmp_path / "m.gguf").next(LONG, ours.config.vocab_size)
    wanted = log_probabilities(ours, LONG)
    # llama.cpp looks GELU up in a table of float16.
    tolerance = 2e-2 if architecture in ("gpt2", "bloom") else 5e-5
    assert max(abs(wanted[id] - value) for id, value in theirs.items()) < tolerance
    assert max(theirs, key=theirs.__getitem__) == wanted.argmax()
    assert len(theirs) > 200


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("yarn_beta_fast", 8.0),
        ("yarn_beta_slow", 0.25),
        ("yarn_attn_factor", 1.7),
        ("yarn_ext_factor", 0.5),
    ],
)
def test_llama_cpp_does_not_read_what_we_refuse_of_yarn(fact: str, value: float, tmp_path: Path) -> None:
    """Who wrote such a file meant something else than llama.cpp computes; which is right is not known."""
    yarn = model(LLAMA | {"positions": YARN})
    path = rewritten(
        tmp_path / "m.gguf",
        lambda metadata: metadata.update({f"llama.rope.scaling.{fact}": value}),
        LLAMA | {"positions": YARN},
    )
    theirs, wanted = LlamaCpp(path).next(LONG, 272), log_probabilities(yarn, LONG)
    assert max(abs(wanted[id] - value) for id, value in theirs.items()) < 5e-5
    with pytest.raises(FileError, match=f"llama.rope.scaling.{fact} = "):
        gguf.read(path)


@pytest.mark.parametrize(("kind", "tolerance"), [("F16", 0.05), ("Q8_0", 0.5)])
def test_llama_cpp_continues_a_rewritten_model_as_the_specification_does(
    kind: str, tolerance: float, tmp_path: Path
) -> None:
    """llama.cpp brings activations to the type of the matrix, so random weights leave a difference."""
    gguf.write(tmp_path / "m.gguf", model(LLAMA), kind)
    read, theirs, ids = gguf.read(tmp_path / "m.gguf"), LlamaCpp(tmp_path / "m.gguf"), list(IDS)
    for _ in range(6):
        wanted, found = log_probabilities(read, ids), theirs.next(ids, 5)
        assert max(abs(wanted[id] - value) for id, value in found.items()) < tolerance
        ids.append(int(wanted.argmax()))


@pytest.mark.parametrize("scheme", [Scheme(8), Scheme(4, 32)], ids=str)
def test_llama_cpp_reads_our_quantized_weights_as_we_do(scheme: Scheme, tmp_path: Path) -> None:
    """It brings activations to 8 bits, which leaves a difference; a wrong scale or nibble leaves far more."""
    ours = quantize_pretrained(model(LLAMA), scheme)
    gguf.write(tmp_path / "m.gguf", ours)
    theirs = LlamaCpp(tmp_path / "m.gguf").next(IDS, 272)
    wanted = log_probabilities(ours.to_floats(), IDS)
    assert max(abs(wanted[id] - value) for id, value in theirs.items()) < 0.5
    assert max(abs(wanted[::-1][id] - value) for id, value in theirs.items()) > 2


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_gives_the_tokens_of_llama_cpp(pre: str, tmp_path: Path) -> None:
    """The file is written with one pre-tokenizer and its name replaced, so each has the same merges."""
    path = tmp_path / "m.gguf"
    tiny = {"vocab_size": SIZE, "context_length": 64, "n_layer": 1, "n_head": 1, "d_model": 32, "d_ff": 32}
    metadata = companions_metadata(model(tiny, tokenizer=tokenizer(MANY_MERGES), generation={}))
    metadata["tokenizer.ggml.pre"] = pre
    write_with_metadata(path, model(tiny, tokenizer=None), metadata)
    theirs, ours = LlamaCpp(path), gguf.read(path).tokenizer
    assert ours is not None
    for text in [*TEXTS, *random_texts(60)]:
        assert ours.encode(text) == theirs.tokens(text), (pre, text)
        assert ours.encode(text, parse_special=True) == theirs.tokens(text, parse_special=True), (pre, text)


def random_texts(count: int) -> list[str]:
    """Letters, digits, marks, spaces and special tokens of many scripts, thrown together."""
    draw = random.Random(0)
    pieces = [
        *"aZé東ñß 12٣½²!?.,'$+<=>^~|_-\"\n\r\t\u00a0\u3000🙂",
        "'s",
        "'LL",
        "  ",
        "the",
        "123",
        "\r\n",
        "<|end|>",
    ]
    return ["".join(draw.choices(pieces, k=draw.randrange(1, 30))) for _ in range(count)]
