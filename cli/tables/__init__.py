"""What commands print besides results, instances and decisions."""
