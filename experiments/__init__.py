"""Measurements and reproductions: one module is one family of figures or tables, ``python -m experiments.NAME``."""
