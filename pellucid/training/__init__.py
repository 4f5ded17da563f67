"""Text in, model out: recipes, the loop, optimizers, and checkpoints that lose nothing."""
