"""The rules of `sharing`, read a second time."""
