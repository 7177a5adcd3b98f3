"""What γ is: the noise function, the priors that judge it, its error, and the baselines."""
