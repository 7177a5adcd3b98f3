"""The proof that a noise function is private: corners, families, certificates, tables and what one query costs."""
