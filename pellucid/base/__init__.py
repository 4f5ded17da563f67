"""What every room stands on: errors, files, names, types of numbers, strict reading, registries."""
