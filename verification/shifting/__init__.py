"""The rules of `shifting`, read a second time."""
