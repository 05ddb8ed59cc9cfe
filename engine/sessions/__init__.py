"""Sessions: rounds that keep what did not change."""
