"""Other people's files, in and out: Hugging Face folders, GGUF, and our own model folder."""
