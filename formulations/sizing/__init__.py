"""Sizing: GPU count, clock or power limit, batch and pool of every job in a round."""
