"""How tokenizers cut a word, step by step: the readable twins of the fast ones."""
