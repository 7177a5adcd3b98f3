"""The sensitivity sampler: Figures 2 to 7 and 9 of [S]."""
