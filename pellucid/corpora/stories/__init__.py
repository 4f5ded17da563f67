"""Stories: an endless corpus of short children's stories whose every probability is known.

>>> one = story("tiny", seed=1, number=3)
>>> one.text
'Once there was a kind hen named Rose. She had a red ball, ... A frog found it there.'
>>> one.log_probability == log_probability("tiny", one.text)
True
"""

from pellucid.corpora.stories.annotate import Annotation, annotate
from pellucid.corpora.stories.exact import (
    entropy,
    how_many,
    longest,
    mean_words,
    n_bytes,
    n_words,
    vocabulary,
)
from pellucid.corpora.stories.generate import Story, stories, story
from pellucid.corpora.stories.grammar import GrammarError
from pellucid.corpora.stories.levels import LEVELS
from pellucid.corpora.stories.measure import Fences, Floor, Gap, fences, floor, gap, overlap
from pellucid.corpora.stories.parse import ForeignText, log_probability, parse, read
from pellucid.corpora.stories.spelling import join, words_of
from pellucid.corpora.stories.unambiguous import is_unambiguous

__all__ = [
    "LEVELS",
    "Annotation",
    "Fences",
    "Floor",
    "ForeignText",
    "Gap",
    "GrammarError",
    "Story",
    "annotate",
    "entropy",
    "fences",
    "floor",
    "gap",
    "how_many",
    "is_unambiguous",
    "join",
    "log_probability",
    "longest",
    "mean_words",
    "n_bytes",
    "n_words",
    "overlap",
    "parse",
    "read",
    "stories",
    "story",
    "vocabulary",
    "words_of",
]
