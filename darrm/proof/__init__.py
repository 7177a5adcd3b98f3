"""The proof that a law is private, γ or one on histograms: certificates, tables and what one query costs."""

__all__ = [
    "adaptive_voters",
    "charge",
    "corners",
    "definition",
    "dominating",
    "error_bound",
    "evidence",
    "full_set",
    "kinds",
    "library",
    "loops",
    "moves",
    "optimality",
    "profile",
    "renyi",
    "share_bound",
    "stored",
    "table",
    "voter_corners",
    "voter_rows",
]
