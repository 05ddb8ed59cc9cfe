"""Reports as one HTML file: nothing is fetched, and what files name is escaped."""
