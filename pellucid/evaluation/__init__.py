"""How good a model is: one implementation for training's validation and for users."""
