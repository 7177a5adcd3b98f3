"""Lower bounds from outside on what the releases, the noisy maxima of PATE and the teachers lose."""
