"""Problems, results, and their documents."""
