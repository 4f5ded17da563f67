"""Values, or parts of them, that are replaced while a model runs: activation and path patching."""
