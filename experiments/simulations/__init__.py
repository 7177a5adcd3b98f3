"""The simulations of [D]: γ, errors and Table 3, Figures 2 and 6 to 9."""
