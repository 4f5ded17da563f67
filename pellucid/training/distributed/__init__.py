"""Several processes that train one model: who they are, what they share, and what each holds."""
