"""How time and rows grow with the number of voters, and the speed of releases."""
