"""The accounting of [P]: its tables from published histograms, and benchmarks."""
