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
from tests.faults.fault import Patch, fault

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
def merges_of_lower_rank_first(patch: Patch) -> None:
    """The last merge of a word is made first."""
    right = Standard.__init__

    def wrong(self: Standard, text: str, *more: Any, **options: Any) -> None:
        table = json.loads(text)
        table["model"]["merges"].reverse()
        right(self, json.dumps(table), *more, **options)

    patch.setattr(Standard, "__init__", wrong)


@fault("loading", subject="llama normalizer", check="tokenizer outside", at="tokenizer.encode")
def normalization_dropped(patch: Patch) -> None:
    """A text is encoded as it is, where the file has its letters composed first."""
    change_file(patch, normalizer=None)


@fault("loading", subject="llama", check="tokenizer outside", at="tokenizer.encode")
def a_space_put_in_front(patch: Patch) -> None:
    """A space is added before the first word, as other tokenizers do."""
    right = Standard.encode
    patch.setattr(Standard, "encode", lambda self, text, *more: right(self, " " + text, *more))


@fault("loading", subject="llama", check="tokenizer outside", at="tokenizer.encode")
def names_of_special_tokens_parsed(patch: Patch) -> None:
    """A user's text that names a special token becomes that token."""
    right = Standard.encode
    patch.setattr(Standard, "encode", lambda self, text, parse_special=False: right(self, text, True))


@fault("loading", subject="llama", check="tokenizer outside", at="tokenizer.encode(parse_special)")
def special_tokens_encoded_as_text(patch: Patch) -> None:
    """Special tokens are encoded letter by letter where they should be parsed."""
    right = Standard.encode
    patch.setattr(Standard, "encode", lambda self, text, parse_special=False: right(self, text))


@fault("loading", subject="gguf", check="tokenizer outside", at="tokenizer.encode")
def words_of_a_gguf_file_split_by_other_rules(patch: Patch) -> None:
    """GPT-2's words are split as those of a tokenizer that isolates each digit."""
    digits = tokenizer.PRE_TOKENIZERS["smollm"]
    patch.setitem(tokenizer.PRE_TOKENIZERS, "gpt-2", digits)


@fault("loading", subject="gguf", check="tokenizer outside", at="tokenizer.encode")
def two_ids_of_a_gguf_file_exchanged(patch: Patch) -> None:
    """Two merged tokens of a GGUF file's vocabulary have each other's ids."""
    right = tokenizer.byte_level_bpe

    def wrong(vocab: dict[str, int], *more: Any) -> Any:
        return right(vocab | {"he": vocab["in"], "in": vocab["he"]}, *more)

    patch.setattr(tokenizer, "byte_level_bpe", wrong)


# ---- bos


@fault("generation", subject="llama bos", check="bos", at="tokenizer.bos")
def bos_missing(patch: Patch) -> None:
    """The post-processor of tokenizer.json puts bos in front, and it is ignored."""
    patch.setattr(companions, "_adds_bos", lambda tokenizer, settings: False)


@fault("generation", subject="llama add_bos", check="bos", at="tokenizer.bos")
def add_bos_token_ignored(patch: Patch) -> None:
    """`add_bos_token` of tokenizer_config.json is ignored."""
    right = companions._adds_bos
    patch.setattr(companions, "_adds_bos", lambda tokenizer, settings: right(tokenizer, {}))


@fault("generation", subject="llama", check="bos", at="tokenizer.bos")
def bos_always_added(patch: Patch) -> None:
    """Every text begins with bos, whatever the tokenizer's files say."""
    patch.setattr(companions, "_adds_bos", lambda tokenizer, settings: True)


@fault("generation", subject="llama bos", check="bos", at="tokenizer.bos")
def bos_doubled(patch: Patch) -> None:
    """The bos token is added by the tokenizer and by the prompt."""
    patch.setattr(
        Pretrained,
        "encode",
        lambda self, text, parse_special=False: 2 * self.bos_ids + self.tokenizer.encode(text, parse_special),
    )


@fault("generation", subject="llama bos", check="bos", at="tokenizer.bos")
def bos_missing_where_generation_starts(patch: Patch) -> None:
    """A prompt to continue lacks bos, and a scored one has it."""
    patch.setattr(
        Pretrained,
        "encode_start",
        lambda self, text, parse_special=False: self.tokenizer.encode(text, parse_special),
    )


@fault("generation", subject="gguf bos", check="bos", at="tokenizer.bos")
def add_bos_token_of_a_gguf_file_ignored(patch: Patch) -> None:
    """`tokenizer.ggml.add_bos_token` is not read."""
    patch.setattr(tokenizer._TokenizerMetadata, "boolean", lambda self, key, default: default)


# ---- conversations


@fault("generation", subject="llama bos", check="chat template", at="generation prompt")
def generation_prompt_missing(patch: Patch) -> None:
    """A conversation that asks for an answer does not begin it."""
    right = chat_template.ChatTemplate.renders

    def wrong(self: Any, wanted: Sequence[tuple[Any, bool]]) -> list[str]:
        return right(self, [(messages, False) for messages, _ in wanted])

    patch.setattr(chat_template.ChatTemplate, "renders", wrong)


@fault("generation", subject="gguf bos", check="chat template", at="chat template")
def the_systems_message_dropped(patch: Patch) -> None:
    """The first message of a conversation is lost."""
    right = chat_template.ChatTemplate.renders

    def wrong(self: Any, wanted: Sequence[tuple[Any, bool]]) -> list[str]:
        kept = [([m for m in messages if m["role"] != "system"], asking) for messages, asking in wanted]
        return right(self, kept)

    patch.setattr(chat_template.ChatTemplate, "renders", wrong)


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
def bos_in_front_of_a_conversation(patch: Patch) -> None:
    """The prompt of a conversation begins with a bos token that its template does not write."""
    right = chat_template.Chat.prompt
    patch.setattr(
        chat_template.Chat,
        "prompt",
        lambda self, messages, asking=True: [
            self.tokenizer.id_of(self.tokenizer.special.bos), *right(self, messages, asking)
        ],
    )  # fmt: skip
