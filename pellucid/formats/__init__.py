"""Model files in and out: Hugging Face folders, GGUF, adapters, our own folder, and the library of models."""
