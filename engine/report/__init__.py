"""Results, instances and decisions in words and tables, as the command line and notebooks show them."""
