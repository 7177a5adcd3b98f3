"""What text reports share."""


def spread(count: int, most: int) -> list[int]:
    """Choose at most so many of the places 0 … count − 1 to show, evenly, the first and the last among them.

    >>> spread(5, 8), spread(100, 4)
    ([0, 1, 2, 3, 4], [0, 33, 66, 99])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})
