"""Aggregators: from the votes of one query to one private label."""
