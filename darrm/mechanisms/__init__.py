"""What answers, exactly drawn: proven tables, noisy maxima, and selection; each knows its cost."""
