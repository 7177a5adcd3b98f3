"""Votes of prompts whose private examples are drawn anew for every question, on real data."""
