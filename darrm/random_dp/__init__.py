"""Random differential privacy with sampled sensitivity: any function, without a sensitivity bound."""
