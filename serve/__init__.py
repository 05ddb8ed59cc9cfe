"""The service: sessions over HTTP, and the journal of changes and decisions."""
