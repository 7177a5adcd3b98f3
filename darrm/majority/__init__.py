"""Two classes: noise functions, their corners and rows, their proof, and the closed forms of the optimum."""
