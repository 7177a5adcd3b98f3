"""The sensitivity sampler: Figures 2 to 7 of [S]."""
