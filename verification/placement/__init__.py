"""The rules of `placement`, read a second time."""
