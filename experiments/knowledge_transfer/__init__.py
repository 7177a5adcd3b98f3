"""Private teachers, private labels, a student: Tables 1, 2 and 4 to 10 of [D], end to end."""
