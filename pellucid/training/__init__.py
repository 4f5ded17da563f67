"""Text in, model out: recipes, the loop, optimizers, and checkpoints that resume bit for bit."""
