"""Private majority votes: optimal noise, proven private, released exactly and accounted for."""
