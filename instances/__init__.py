"""Rounds as data: instances, decisions, their files, generators, trace readers and the checker."""
