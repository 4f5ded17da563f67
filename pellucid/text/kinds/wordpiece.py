"""WordPiece: a word is cut greedily into the longest known pieces, those inside it marked ##.

Schuster and Nakajima 2012; as BERT has it (arXiv:1810.04805). White space is not kept, and a word with an
unknown letter is one unknown token.
"""

import json
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special

UNKNOWN = "[UNK]"


def train(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> StandardTokenizer:
    texts = list(texts)
    names = [*special.names(), UNKNOWN]
    library = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(cleanup=False)
    # The library numbers the letters inside words as it happens to meet them, and equal counts are decided by
    # those numbers. Given first, as if they were special, they are always numbered alike.
    inside = [f"##{letter}" for letter in sorted(set().union(*texts)) if not letter.isspace()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=[*names, *inside], show_progress=progress
    )
    library.train_from_iterator(texts, trainer)
    file = json.loads(library.to_str())
    file["added_tokens"] = [entry for entry in file["added_tokens"] if entry["content"] in names]
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), special, "wordpiece")
