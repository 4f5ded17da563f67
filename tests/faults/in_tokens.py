"""Faults of tokenizers and prompts: the numbers of a model are right, and it reads other ids."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pellucid.formats import companions
from pellucid.formats.gguf import tokenizer
from pellucid.formats.pretrained import Pretrained
from pellucid.text import chat_template, standard
from tests.faults import loaded
from tests.faults.fault import Patch, fault, replacing

assert loaded.SUBJECTS  # it adds the subjects

Standard = standard.StandardTokenizer


def change_file(patch: Patch, **changes: Any) -> None:
    """Changes parts of each tokenizer.json after it was read."""
    right = Standard.__init__

    def wrong(self: Standard, text: str, *more: Any, **options: Any) -> None:
        right(self, json.dumps(json.loads(text) | changes), *more, **options)

    patch.setattr(Standard, "__init__", wrong)


# ---- words


@fault("loading", subject="many merges", check="tokenizer outside", at="tokenizer.encode")
@replacing(Standard, "__init__")
def merges_of_lower_rank_first(right: Any, self: Standard, text: str, *more: Any, **options: Any) -> None:
    """The last merge of a word is made first."""
    table = json.loads(text)
    table["model"]["merges"].reverse()
    right(self, json.dumps(table), *more, **options)


@fault("loading", subject="llama normalizer", check="tokenizer outside", at="tokenizer.encode")
def normalization_dropped(patch: Patch) -> None:
    """A text is encoded as it is, where the file has its letters composed first."""
    change_file(patch, normalizer=None)


@fault("loading", subject="llama", check="tokenizer outside", at="tokenizer.encode")
@replacing(Standard, "encode")
def a_space_put_in_front(right: Any, self: Any, text: Any, *more: Any) -> Any:
    """A space is added before the first word, as other tokenizers do."""
    return right(self, " " + text, *more)


@fault("loading", subject="llama", check="tokenizer outside", at="tokenizer.encode")
@replacing(Standard, "encode")
def names_of_special_tokens_parsed(right: Any, self: Any, text: Any, parse_special: Any = False) -> Any:
    """A user's text that names a special token becomes that token."""
    return right(self, text, True)


@fault("loading", subject="llama", check="tokenizer outside", at="tokenizer.encode(parse_special)")
@replacing(Standard, "encode")
def special_tokens_encoded_as_text(right: Any, self: Any, text: Any, parse_special: Any = False) -> Any:
    """Special tokens are encoded letter by letter where they should be parsed."""
    return right(self, text)


@fault("loading", subject="gguf", check="tokenizer outside", at="tokenizer.encode")
def words_of_a_gguf_file_split_by_other_rules(patch: Patch) -> None:
    """GPT-2's words are split as those of a tokenizer that isolates each digit."""
    digits = tokenizer.PRE_TOKENIZERS["smollm"]
    patch.setitem(tokenizer.PRE_TOKENIZERS, "gpt-2", digits)


@fault("loading", subject="gguf", check="tokenizer outside", at="tokenizer.encode")
@replacing(tokenizer, "byte_level_bpe")
def two_ids_of_a_gguf_file_exchanged(right: Any, vocab: dict[str, int], *more: Any) -> Any:
    """Two merged tokens of a GGUF file's vocabulary have each other's ids."""
    return right(vocab | {"he": vocab["in"], "in": vocab["he"]}, *more)


# ---- bos


@fault("generation", subject="llama bos", check="bos", at="tokenizer.bos")
def bos_missing(patch: Patch) -> None:
    """The post-processor of tokenizer.json puts bos in front, and it is ignored."""
    patch.setattr(companions, "_adds_bos", lambda tokenizer, settings: False)


@fault("generation", subject="llama add_bos", check="bos", at="tokenizer.bos")
@replacing(companions, "_adds_bos")
def add_bos_token_ignored(right: Any, tokenizer: Any, settings: Any) -> Any:
    """`add_bos_token` of tokenizer_config.json is ignored."""
    return right(tokenizer, {})


@fault("generation", subject="llama", check="bos", at="tokenizer.bos")
def bos_always_added(patch: Patch) -> None:
    """Every text begins with bos, whatever the tokenizer's files say."""
    patch.setattr(companions, "_adds_bos", lambda tokenizer, settings: True)


@fault("generation", subject="llama bos", check="bos", at="tokenizer.bos")
@replacing(Pretrained, "encode")
def bos_doubled(right: Any, self: Any, text: Any, parse_special: Any = False) -> Any:
    """The bos token is added by the tokenizer and by the prompt."""
    return 2 * self.bos_ids + self.tokenizer.encode(text, parse_special)


@fault("generation", subject="llama bos", check="bos", at="tokenizer.bos")
@replacing(Pretrained, "encode_start")
def bos_missing_where_generation_starts(right: Any, self: Any, text: Any, parse_special: Any = False) -> Any:
    """A prompt to continue lacks bos, and a scored one has it."""
    return self.tokenizer.encode(text, parse_special)


@fault("generation", subject="gguf bos", check="bos", at="tokenizer.bos")
def add_bos_token_of_a_gguf_file_ignored(patch: Patch) -> None:
    """`tokenizer.ggml.add_bos_token` is not read."""
    patch.setattr(tokenizer._TokenizerMetadata, "boolean", lambda self, key, default: default)


# ---- conversations


@fault("generation", subject="llama bos", check="chat template", at="generation prompt")
@replacing(chat_template.ChatTemplate, "renders")
def generation_prompt_missing(right: Any, self: Any, wanted: Sequence[tuple[Any, bool]]) -> list[str]:
    """A conversation that asks for an answer does not begin it."""
    return right(self, [(messages, False) for messages, _ in wanted])


@fault("generation", subject="gguf bos", check="chat template", at="chat template")
@replacing(chat_template.ChatTemplate, "renders")
def the_systems_message_dropped(right: Any, self: Any, wanted: Sequence[tuple[Any, bool]]) -> list[str]:
    """The first message of a conversation is lost."""
    kept = [([m for m in messages if m["role"] != "system"], asking) for messages, asking in wanted]
    return right(self, kept)


@fault("generation", subject="llama bos", check="chat template", at="chat template")
def a_template_of_another_model(patch: Patch) -> None:
    """The template is not the file's, but a usual one."""
    right = companions.read_companions

    def wrong(*given: Any) -> Any:
        other = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
        return replace(right(*given), chat_template=other)

    from pellucid.formats.huggingface import reading

    patch.setattr(reading, "read_companions", wrong)


@fault("generation", subject="llama bos", check="chat template", at="chat template ids")
def special_tokens_of_a_conversation_encoded_as_text(patch: Patch) -> None:
    """The names of the template's special tokens are encoded letter by letter."""
    patch.setattr(chat_template.Chat, "_need_pieces", lambda self, token: None)
    patch.setattr(chat_template.Chat, "_encode", lambda self, text, mark: self.tokenizer.encode(text))


@fault("generation", subject="gguf bos", check="chat template", at="chat template ids")
@replacing(chat_template.Chat, "prompt")
def bos_in_front_of_a_conversation(right: Any, self: Any, messages: Any, asking: Any = True) -> Any:
    """The prompt of a conversation begins with a bos token that its template does not write."""
    return [self.tokenizer.id_of(self.tokenizer.special.bos), *right(self, messages, asking)]
