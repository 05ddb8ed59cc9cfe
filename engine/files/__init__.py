"""Exchange with files of others."""
