"""Tables: proven laws, their files, their costs, and releases."""
