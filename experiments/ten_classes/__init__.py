"""Teachers of all ten classes, each private by itself, and every release of their plurality at one budget a label."""
