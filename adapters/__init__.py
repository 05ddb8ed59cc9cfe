"""Adapters: what makes other schedulers callers of a session, and simulators users of our policies."""
