"""Random differential privacy with sampled sensitivity: make any function private without a bound on its sensitivity."""
