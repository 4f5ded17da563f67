"""Nothing lost: the folder of a run, its checkpoints, and all that the bits depend on."""
