"""Other programs on the same model: transformers, llama.cpp, the `tokenizers` library."""
