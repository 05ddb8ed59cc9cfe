"""The rules of `sizing`, read a second time."""
