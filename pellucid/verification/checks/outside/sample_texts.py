"""Texts on which tokenizers and chat templates are tried: frequent sources of errors."""

from pellucid.verification.checks.check import Subject

TEXTS = (
    "It's 12:30, isn't it?  Twenty-three spaces:                       end.\n\n\ttabs\tand\r\nlines",
    "naïve façade Ångström — “quoted” … ½ ² ™ 𝒳 👩‍🚀 العربية 日本語 עברית Ελληνικά कि",
    "def f(x):\n    return x ** 2  # 10_000 == 1e4\n",
    " leading, trailing ",
    "cafe\u0301 cooperation \ufb01ne \u2167 \uff21\uff22 a\u00a0b\u200bc \u1e9b\u0323 İstanbul",
    "<|im_start|>user\n<s> </s> <|endoftext|> [INST]",
)
"""Spaces, digits, contractions, letters that a normalizer changes; the last has names of special tokens."""
SHORT = "The sea"

CONVERSATION = (
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "What is 12 + 30?"},
    {"role": "assistant", "content": "It is 42."},
    {"role": "user", "content": " And twice that?\n"},
)


def sample_texts(subject: Subject) -> tuple[str, ...]:
    """Returns the texts for a model's tokenizer, the last with the names of its own special tokens."""
    tokenizer = subject.model.pretrained.tokenizer
    names = [] if tokenizer is None else list(tokenizer.special_tokens)[:8]
    return (SHORT, subject.text, *TEXTS, " ".join(f"a{name}b {name}" for name in names) or SHORT)
