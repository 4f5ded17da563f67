"""Servers: a model over HTTP as OpenAI serves it, and the explorer, the page on which every number opens."""
