"""What other programs say of the same model: transformers, llama.cpp, the `tokenizers` library."""
