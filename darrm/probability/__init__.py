"""Distributions of vote counts, and sums of exponentials that neither overflow nor cancel."""
