"""Texts written by the votes of small language models, against other ways to sample from many models privately."""
