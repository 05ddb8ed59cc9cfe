"""The service: sessions over HTTP and as JSON lines, and the journal of what they were told and decided."""
