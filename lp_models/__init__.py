"""Linear programs as data, and their solution. Knows no privacy."""
