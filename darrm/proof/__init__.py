"""The proof that a noise function is private: corners, families, certificates, tables and what one query costs."""

__all__ = [
    "charge",
    "corners",
    "definition",
    "dominating",
    "full_set",
    "kinds",
    "library",
    "loops",
    "optimality",
    "plurality",
    "plurality_optimality",
    "plurality_table",
    "profile",
    "renyi",
    "stored",
    "table",
]
