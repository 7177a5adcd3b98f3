"""Every row of the three papers, on one page: where it is reproduced, and what came out."""
