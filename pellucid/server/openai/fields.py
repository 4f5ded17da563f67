"""Every field of every request, as one table: type, bounds, default, whether it is used, ignored or refused,
and why.

    values = read_fields("completions", {"prompt": "A B", "temperature": 0, "seed": None})
    values["prompt"], values["temperature"], values["stream"]       # ["A B"], 0.0, False

The settings of `Sampling` are fields under their names, with the bounds of their own table. Every field that
OpenAI documents has a row: one that changes nothing in the answer is ignored, one that would change it and
that the server lacks is refused by name, unless its value asks for nothing. A field without a row is refused.
The pages of documentation, the messages and the tests are made of this table.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from pellucid.base.errors import UsageError
from pellucid.base.schema import REQUIRED, Field
from pellucid.generation.settings.foreign_keys import ALWAYS, BEAMS, EXPLANATIONS, HABITS, SAMPLED
from pellucid.generation.settings.sampling import DEFAULTS
from pellucid.generation.settings.table import SETTINGS, TokenId
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.reading.field import (
    MOST_CHARACTERS,
    MOST_IDS,
    RequestField,
    RequestFields,
    RequestObject,
    describe_prompts,
    index_fields,
    list_of,
    read_content,
    read_format,
    read_object,
    read_prompts,
)

FieldEndpoint = Literal["completions", "chat", "embeddings", "tokenize", "detokenize"]
PATHS: Mapping[FieldEndpoint, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "tokenize": "/tokenize",
    "detokenize": "/detokenize",
}
MOST_PROMPTS = 128
MOST_INPUTS = 2048
MOST_MESSAGES = 1024
MOST_PARTS = 1024
"""Of one message."""
MOST_TOP_LOGPROBS = 20
MOST_MODEL_NAME = 512
DEFAULT_COMPLETION_TOKENS = 16
DEFAULT_TEMPERATURE = 1.0
"""Where the model's own settings have none."""

COMPLETIONS: tuple[FieldEndpoint, ...] = ("completions",)
CHAT: tuple[FieldEndpoint, ...] = ("chat",)
GENERATION: tuple[FieldEndpoint, ...] = ("completions", "chat")
EMBEDDINGS: tuple[FieldEndpoint, ...] = ("embeddings",)
TOKENIZE: tuple[FieldEndpoint, ...] = ("tokenize",)
DETOKENIZE: tuple[FieldEndpoint, ...] = ("detokenize",)
OPENAI: tuple[FieldEndpoint, ...] = (*GENERATION, *EMBEDDINGS)
ALL: tuple[FieldEndpoint, ...] = get_args(FieldEndpoint)


class FieldRow(NamedTuple):
    """A field of the endpoints that have it."""

    endpoints: tuple[FieldEndpoint, ...]
    field: RequestField


def make_field(name: str, meaning: str, type: Any = None, **more: Any) -> RequestField:
    """Returns a field; a text is as long as a body holds, and an object in it is its inner one."""
    if type is str and "most" not in more and "choices" not in more:
        more |= {"most": MOST_CHARACTERS, "words": "a text"}
    if isinstance(type, RequestObject):
        more |= {"inner": type, "words": "an object"}
    return RequestField(name, type, meaning=meaning, **more)


def use(endpoints: tuple[FieldEndpoint, ...], name: str, type: Any, why: str, **more: Any) -> FieldRow:
    """Returns the row of a field that is used."""
    return FieldRow(endpoints, make_field(name, why, type, **more))


def use_setting(endpoints: tuple[FieldEndpoint, ...], name: str, setting: str, **more: Any) -> FieldRow:
    """Returns the row of a field that gives a setting of `Sampling`, whose table says what it may be."""
    row = SETTINGS[setting]
    same = {
        key: getattr(row, key) for key in ("least", "most", "choices", "single", "words", "example", "then")
    }
    return use(endpoints, name, row.type, **{"why": row.meaning, "setting": setting} | same | more)


def ignore(endpoints: tuple[FieldEndpoint, ...], name: str, why: str) -> FieldRow:
    """Returns the row of a field that changes nothing; its value may be anything."""
    return FieldRow(endpoints, make_field(name, why, fate="ignored"))


def refuse(endpoints: tuple[FieldEndpoint, ...], name: str, why: str, *neutral: Any, **more: Any) -> FieldRow:
    """Returns the row of a field that is refused unless its value is null or one of the neutral ones."""
    return FieldRow(endpoints, make_field(name, why, fate="refused", neutral=neutral, **more))


# ---- objects in a request

NO_TOOLS = "The server calls no tools: describe them in a message, and read the answer's text."
IN_CONTENT = "The chat template reads the content: write it there."
NO_MEDIA = "The server reads text only, and fetches no address: send the text."
CACHING = "Caching changes what a request costs, not its answer."
PART_FIELDS = index_fields(
    make_field(
        "type",
        "What the part is.",
        str,
        choices=("text",),
        refusals={
            **dict.fromkeys(("image_url", "input_image", "input_audio", "file"), NO_MEDIA),
            "refusal": "The server makes no refusals: send its words as a part of the type text.",
        },
        default=REQUIRED,
    ),
    make_field("text", "The words of the part.", str, default=REQUIRED),
    make_field("refusal", "The server makes no refusals: send a text.", fate="refused", neutral=("",)),
    *(make_field(name, NO_MEDIA, fate="refused") for name in ("image_url", "input_audio", "file")),
    *(make_field(name, CACHING, fate="ignored") for name in ("prompt_cache_breakpoint", "cache_control")),
)
PART = RequestObject("a part of a message", PART_FIELDS)
PARTS = Field("", list_of(PART), least=1, most=MOST_PARTS)
MESSAGE_FIELDS = index_fields(
    make_field(
        "role",
        "Who says it; developer is what OpenAI now calls system.",
        str,
        choices={"system": "system", "developer": "system", "user": "user", "assistant": "assistant"},
        refusals=dict.fromkeys(("tool", "function"), NO_TOOLS),
        default=REQUIRED,
    ),
    make_field(
        "content",
        "What is said; the texts of several parts are joined with a newline.",
        Any,
        then=read_content(PARTS),
        inner=PART,
        words=f"a text, or a list of 1 to {MOST_PARTS:,} parts",
        default=REQUIRED,
    ),
    make_field("name", "The chat template reads the role and the content.", fate="ignored"),
    make_field("annotations", "They are notes to an earlier answer, and not its text.", fate="ignored"),
    make_field(
        "refusal", "The server makes no refusals: send its words as content.", fate="refused", neutral=("",)
    ),
    make_field("audio", NO_MEDIA, fate="refused"),
    make_field("tool_calls", NO_TOOLS, fate="refused", neutral=([],)),
    make_field("tool_call_id", NO_TOOLS, fate="refused", neutral=("",)),
    make_field("function_call", NO_TOOLS, fate="refused"),
    *(
        make_field(name, IN_CONTENT, fate="refused", neutral=("",))
        for name in ("reasoning", "reasoning_content")
    ),
)
STREAM_FIELDS = index_fields(
    make_field("include_usage", "Whether a last event has the number of tokens.", bool, default=False),
    make_field("include_obfuscation", "No event is filled up to hide its length.", fate="ignored"),
    make_field("continuous_usage_stats", "Usage comes in the last event.", fate="refused", neutral=(False,)),
)
JSON_SCHEMA = {key: getattr(SETTINGS["json_schema"], key) for key in ("then", "words")}
SCHEMA_FIELDS = index_fields(
    make_field("schema", "What the answer obeys.", Any, default=REQUIRED, **JSON_SCHEMA),
    make_field("name", "The schema is used, not its name.", fate="ignored"),
    make_field("description", "The model does not see it.", fate="ignored"),
    make_field("strict", "A schema is always obeyed.", fate="ignored"),
)
FORMAT_FIELDS = index_fields(
    make_field(
        "type",
        "Whether the answer is any text, or JSON of a schema.",
        str,
        choices=("text", "json_schema"),
        refusals={
            "json_object": "Objects of any keys and any depth cannot be enforced: use json_schema with a "
            "schema that names the keys."
        },
        default=REQUIRED,
    ),
    make_field("json_schema", "The schema.", RequestObject("a response format's json_schema", SCHEMA_FIELDS)),
)

# ---- rows

OWN_SETTINGS = {name for rows in (SAMPLED, BEAMS, ALWAYS) for name, _ in rows.values()} - {"stop_ids"}
"""Settings that a model's own files may have."""


def _default_text(name: str) -> str:
    if name == "stop_ids":
        return "the model's own"
    if name == "seed":
        return "a fresh one"
    default = DEFAULT_TEMPERATURE if name == "temperature" else DEFAULTS[name]
    shown = "none" if default in (None, (), {}) else f"{default}".lower()
    return f"the model's own, else {shown}" if name in OWN_SETTINGS and shown != "none" else shown


SETTING_ROWS = tuple(
    use_setting(GENERATION, name, name, default_text=_default_text(name))
    for name in SETTINGS
    if name != "max_new_tokens"
)
MESSAGE = RequestObject("a message", MESSAGE_FIELDS)
MESSAGES: dict[str, Any] = {"inner": MESSAGE, "least": 1, "most": MOST_MESSAGES}


def _prompts(most: int) -> dict[str, Any]:
    return {"default": REQUIRED, "then": read_prompts(most), "words": describe_prompts(most)}


MAX_TOKENS = "Generate this number of new tokens at most."
USED_ROWS = (
    use(
        ALL,
        "model",
        str,
        "The name of the served model; it may be omitted.",
        default_text="the served model",
        most=MOST_MODEL_NAME,
    ),
    use(COMPLETIONS, "prompt", Any, "What the text begins with.", **_prompts(MOST_PROMPTS)),
    use(
        CHAT,
        "messages",
        list_of(MESSAGE),
        "The conversation, which the model's own chat template writes.",
        default=REQUIRED,
        **MESSAGES,
    ),
    use_setting(
        COMPLETIONS,
        "max_tokens",
        "max_new_tokens",
        why=f"{MAX_TOKENS} 0 is for echo.",
        default=DEFAULT_COMPLETION_TOKENS,
    ),
    *(
        use_setting(
            CHAT,
            name,
            "max_new_tokens",
            why=f"{MAX_TOKENS} It is at least 1.",
            default_text="what the context still holds",
        )
        for name in ("max_completion_tokens", "max_tokens")
    ),
    use(COMPLETIONS, "echo", bool, "Whether the answer begins with the prompt.", default=False),
    use(
        COMPLETIONS,
        "logprobs",
        int,
        "Log-probabilities of the tokens, and of this number of the most probable ones at each place; with "
        "echo those of the prompt too.",
        default_text="none",
        least=0,
        most=MOST_TOP_LOGPROBS,
    ),
    use(CHAT, "logprobs", bool, "Whether tokens come with their log-probabilities.", default=False),
    use(
        CHAT,
        "top_logprobs",
        int,
        "Log-probabilities of this number of the most probable tokens at each place, with logprobs.",
        default=0,
        least=0,
        most=MOST_TOP_LOGPROBS,
    ),
    use(GENERATION, "stream", bool, "Whether text is sent as it is generated.", default=False),
    use(
        GENERATION,
        "stream_options",
        RequestObject("stream_options", STREAM_FIELDS),
        "What else is sent; goes with stream.",
        default=MappingProxyType({"include_usage": False}),
        default_text="none",
    ),
    use(
        GENERATION,
        "response_format",
        RequestObject("response_format", FORMAT_FIELDS),
        "The form of the answer.",
        then=read_format,
        default_text="any text",
        setting="json_schema",
    ),
    use(
        GENERATION,
        "explain",
        bool,
        "Whether each token comes with its entropy, rank and surprisal, and the answer with a trace id.",
        default=False,
    ),
    use(GENERATION, "ledger", bool, "Whether the generation ledger comes with the answer.", default=False),
    use(EMBEDDINGS, "input", Any, "The texts to embed.", **_prompts(MOST_INPUTS)),
    use(
        EMBEDDINGS,
        "encoding_format",
        str,
        "Numbers, or the base64 text of float32 in little-endian order.",
        default="float",
        choices=("float", "base64"),
    ),
    use(TOKENIZE, "prompt", str, "The text to tokenize.", default_text="none, where messages are given"),
    use(
        TOKENIZE,
        "messages",
        list_of(MESSAGE),
        "A conversation to tokenize, in place of a text; the model's own chat template writes it.",
        default_text="none",
        **MESSAGES,
    ),
    use(
        TOKENIZE,
        "add_generation_prompt",
        bool,
        "Whether a conversation ends with what asks for the answer.",
        default=True,
    ),
    use(
        TOKENIZE,
        "add_special_tokens",
        bool,
        "Whether a text begins with the token that the model's texts begin with.",
        default=True,
    ),
    use(
        TOKENIZE,
        "return_token_strs",
        bool,
        "Whether each token comes as the tokenizer's file writes it, too.",
        default=False,
    ),
    use(DETOKENIZE, "tokens", list[TokenId], "The ids to decode.", default=REQUIRED, least=0, most=MOST_IDS),
)

NOT_STORED = "Nothing is stored and no one is billed."
IGNORED_ROWS = (
    ignore(OPENAI, "user", "The server keeps no accounts."),
    *(ignore(GENERATION, name, NOT_STORED) for name in ("store", "metadata", "service_tier")),
    ignore(GENERATION, "safety_identifier", "The server keeps no accounts."),
    *(
        ignore(GENERATION, name, CACHING)
        for name in (
            "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cache_prompt",
            "cache_salt",
        )
    ),
    ignore(GENERATION, "parallel_tool_calls", "The server calls no tools, one or several."),
    *(ignore(GENERATION, name, "Requests are served in turn.") for name in ("priority", "id_slot")),
    ignore(GENERATION, "request_id", "The answer has an id of its own."),
    ignore(GENERATION, "keep_alive", "The model stays loaded."),
)  # fmt: skip

NO_CLIENT_TEMPLATE = "The model's own chat template writes the prompt, and a template is code: send messages."
REFUSED_ROWS = (
    refuse(
        GENERATION,
        "best_of",
        "Every generated text is returned: use n, or beams for a search.",
        same_as="n",
        same_default=1,
    ),
    refuse(COMPLETIONS, "suffix", "The models served here continue a text, and fill no gap: omit it.", ""),
    refuse(COMPLETIONS, "top_logprobs", "Here logprobs is the number: use logprobs.", 0),
    refuse(
        COMPLETIONS, "messages", "This endpoint continues a text: use prompt, or /v1/chat/completions.", []
    ),
    refuse(CHAT, "prompt", "This endpoint answers a conversation: use messages, or /v1/completions.", ""),
    refuse(CHAT, "echo", "An answer is not part of the prompt: use /v1/completions.", False),
    refuse(CHAT, "system", 'Use a message with the role "system".', ""),
    refuse(GENERATION, "prompt_logprobs", "Use echo and logprobs of /v1/completions.", 0, False),
    *(refuse(GENERATION, name, NO_TOOLS, []) for name in ("tools", "functions")),
    *(refuse(GENERATION, name, NO_TOOLS, "none", "auto") for name in ("tool_choice", "function_call")),
    refuse(GENERATION, "audio", "The server writes text only: omit it."),
    refuse(GENERATION, "modalities", 'The server writes text only: use ["text"].', ["text"]),
    refuse(GENERATION, "prediction", "The answer's text is not compared with a predicted one: omit it."),
    refuse(GENERATION, "web_search_options", "The server fetches nothing: put what was found in a message."),
    refuse(GENERATION, "moderation", "The server has no second model that judges texts: omit it."),
    refuse(
        GENERATION,
        "reasoning_effort",
        "The model has no such setting: say in a message how long to think.",
        "none",
    ),
    refuse(
        GENERATION,
        "verbosity",
        "The model has no such setting: say in a message how long to answer.",
        "medium",
    ),
    *(
        refuse(GENERATION, name, "The model has no such setting: say it in a message.", False)
        for name in ("thinking", "enable_thinking", "reasoning")
    ),
    refuse(
        EMBEDDINGS,
        "dimensions",
        "A vector has as many numbers as the model is wide, and a part of it means nothing: omit it.",
    ),
    refuse(GENERATION, "max_output_tokens", "Use max_tokens."),
    refuse(GENERATION, "chat_template", NO_CLIENT_TEMPLATE),
    refuse(GENERATION, "chat_template_kwargs", NO_CLIENT_TEMPLATE, {}),
    refuse(GENERATION, "add_generation_prompt", "The answer is always the assistant's: omit it.", True),
    refuse(
        GENERATION,
        "continue_final_message",
        "The answer begins a new message: use /v1/completions to continue a text.",
        False,
    ),
    refuse(COMPLETIONS, "add_special_tokens", "A prompt without them is given as ids: use /tokenize.", True),
    refuse(CHAT, "add_special_tokens", "The chat template writes them: omit it.", False),
    refuse(GENERATION, "ignore_eos", "Use stop_ids: [] for a text that no token ends.", False),
    refuse(GENERATION, "skip_special_tokens", "Special tokens are never part of the text.", True),
    refuse(GENERATION, "spaces_between_special_tokens", "Text is decoded as it is.", True),
    refuse(GENERATION, "include_stop_str_in_output", "The text ends before what stops it.", False),
    refuse(GENERATION, "use_beam_search", "Use beams.", False),
    refuse(
        GENERATION,
        "truncate_prompt_tokens",
        "A prompt that is too long is refused and never cut: cut it before it is sent.",
        -1,
    ),
    *(
        refuse(GENERATION, name, "The ids of an answer come with explain.", False)
        for name in ("return_token_ids", "return_tokens_as_token_ids")
    ),
    refuse(GENERATION, "guided_choice", "Use regex, such as (yes|no)."),
    refuse(GENERATION, "guided_grammar", "Use regex or json_schema."),
    refuse(GENERATION, "structured_outputs", "Use regex or json_schema."),
    refuse(GENERATION, "logits_processors", "Code of a client is never run: use logit_bias or samplers.", []),
    refuse(GENERATION, "stop_sequences", "Use stop."),
    refuse(GENERATION, "n_keep", 'Use context: "roll" and keep.', 0),
    *(
        refuse(GENERATION, name, "The server has no such sampler: use those of samplers.", 0, 0.0)
        for name in ("mirostat", "top_a", "dry_multiplier", "xtc_probability")
    ),
    refuse(GENERATION, "documents", "The chat template reads messages: put them into one.", []),
    refuse(GENERATION, "options", "Settings stand beside prompt or messages: move them there.", {}),
    *(
        refuse(TOKENIZE, name, f"Use {ours}.")
        for name, ours in {"content": "prompt", "text": "prompt", "add_special": "add_special_tokens"}.items()
    ),
    refuse(TOKENIZE, "chat_template", NO_CLIENT_TEMPLATE),
    refuse(TOKENIZE, "chat_template_kwargs", NO_CLIENT_TEMPLATE, {}),
    refuse(TOKENIZE, "continue_final_message", "A message is written as a whole: omit it.", False),
    refuse(TOKENIZE, "tools", NO_TOOLS, []),
    refuse(
        TOKENIZE,
        "parse_special",
        "Special tokens in a text are ordinary text, but a text that is exactly one is that token.",
        False,
    ),
    refuse(TOKENIZE, "with_pieces", "Use return_token_strs.", False),
)

WIRE_NAMES: Mapping[str, str] = {"max_new_tokens": "max_tokens"}
"""The field that gives a setting, where it has another name."""


def _list_foreign() -> list[FieldRow]:
    """Returns the rows of other libraries' names for the settings, those with a row of their own omitted."""
    rows = [*SETTING_ROWS, *USED_ROWS, *IGNORED_ROWS, *REFUSED_ROWS]
    listed = {(place, row.field.name) for row in rows for place in row.endpoints}
    reasons = {name: f"Use {WIRE_NAMES.get(ours, ours)}." for name, ours in {**HABITS, **WIRE_NAMES}.items()}
    reasons |= {name: name_wire(said.replace(name, "It", 1)) for name, said in EXPLANATIONS.items()}
    found = []
    for name, why in reasons.items():
        places = tuple(place for place in GENERATION if (place, name) not in listed)
        if places:
            found.append(refuse(places, name, why))
    return found


def name_wire(message: str, names: Mapping[str, str] = WIRE_NAMES) -> str:
    """Returns a message about settings with the names of their fields.

    >>> name_wire("min_new_tokens=5 is more than max_new_tokens=3.")
    'min_new_tokens=5 is more than max_tokens=3.'
    """
    for setting, name in names.items():
        message = re.sub(rf"\b{setting}\b", name, message)
    return message


FIELDS: tuple[FieldRow, ...] = (*USED_ROWS, *SETTING_ROWS, *IGNORED_ROWS, *REFUSED_ROWS, *_list_foreign())


@cache
def get_fields(endpoint: FieldEndpoint) -> RequestFields:
    """Returns the fields of an endpoint by their names."""
    return index_fields(*(row.field for row in FIELDS if endpoint in row.endpoints))


# ---- fields that cannot be combined


class FieldRule(NamedTuple):
    """Fields that cannot be combined: when, and the message; `given` are those that are not null."""

    param: str
    applies: Callable[[Mapping[str, Any]], bool]
    message: str


FIELD_RULES = (
    FieldRule(
        "max_tokens",
        lambda given: "max_tokens" in given and "max_completion_tokens" in given,
        "max_tokens and max_completion_tokens are the same number, and both are given: omit max_tokens.",
    ),
    *(
        FieldRule(
            name,
            lambda given, name=name: given.get(name) == 0 and not given.get("echo"),  # type: ignore[misc]
            f"{name} is 0, and the answer would be empty: use at least 1, or echo of /v1/completions.",
        )
        for name in ("max_tokens", "max_completion_tokens")
    ),
    FieldRule(
        "top_logprobs",
        lambda given: bool(given.get("top_logprobs")) and not given.get("logprobs"),
        "top_logprobs goes with logprobs, which is false: set logprobs to true, or omit top_logprobs.",
    ),
    FieldRule(
        "stream_options",
        lambda given: "stream_options" in given and not given.get("stream"),
        "stream_options goes with stream, which is false: set stream to true, or omit stream_options.",
    ),
    FieldRule(
        "messages",
        lambda given: "prompt" in given and "messages" in given,
        "prompt and messages are both given: send a text or a conversation.",
    ),
    FieldRule(
        "add_special_tokens",
        lambda given: "messages" in given and given.get("add_special_tokens") is True,
        "add_special_tokens does not go with messages: the chat template writes special tokens. Omit it.",
    ),
    FieldRule(
        "response_format",
        lambda given: "json_schema" in given and "response_format" in given,
        "response_format and json_schema both say what the answer obeys: omit one of them.",
    ),
)


def read_fields(endpoint: FieldEndpoint, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the used values of a request, checked and converted.

    Every used field has a value, its default where it is not given or null; settings of `Sampling` without a
    default of their own are there only where they are given. Raises a RequestError with the place (`param`)
    of what is wrong.

    >>> read_fields("detokenize", {"tokens": [1, 2], "model": None})
    {'model': None, 'tokens': [1, 2]}
    """
    try:
        found = read_object(get_fields(endpoint), body, PATHS[endpoint])
    except UsageError as refusal:
        raise RequestError(str(refusal), param=refusal.path) from None
    given = {name: value for name, value in body.items() if value is not None and name in found}
    for param, applies, message in FIELD_RULES:
        if applies(given):
            raise RequestError(message, param=param)
    return found
