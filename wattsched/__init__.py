"""wattsched: scheduling decisions for GPU clusters with a bound and the price of every budget."""
