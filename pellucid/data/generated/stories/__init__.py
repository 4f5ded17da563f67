"""Stories: an endless corpus of short children's stories whose every probability is known.

>>> one = story("tiny", seed=1, number=3)
>>> one.text
'Once there was a kind hen named Rose. She had a red ball, ... A frog found it there.'
>>> one.log_probability == log_probability("tiny", one.text)
True
"""

from pellucid.data.generated.stories.annotate import Annotation, annotate
from pellucid.data.generated.stories.exact import (
    count_stories,
    entropy,
    longest,
    mean_words,
    n_bytes,
    n_words,
    vocabulary,
)
from pellucid.data.generated.stories.generate import Story, stories, story
from pellucid.data.generated.stories.grammar import GrammarError
from pellucid.data.generated.stories.levels import LEVELS
from pellucid.data.generated.stories.lexicon import join, words_of
from pellucid.data.generated.stories.measure import (
    Baselines,
    EntropyFloor,
    Gap,
    baselines,
    entropy_floor,
    gap,
    overlap,
)
from pellucid.data.generated.stories.parse import UnparsableText, log_probability, parse, read

__all__ = [
    "LEVELS", "Annotation", "Baselines", "EntropyFloor", "Gap", "GrammarError", "Story", "UnparsableText",
    "annotate", "baselines", "count_stories", "entropy", "entropy_floor", "gap", "join", "log_probability",
    "longest", "mean_words", "n_bytes", "n_words", "overlap", "parse", "read", "stories", "story",
    "vocabulary", "words_of",
]  # fmt: skip
