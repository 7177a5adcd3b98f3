"""Lower bounds by attacks on the privacy loss of releases, of PATE's noisy maxima and of teachers."""
