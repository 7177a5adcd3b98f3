"""Where the costs of single questions add up for trained models, and where they do not."""
