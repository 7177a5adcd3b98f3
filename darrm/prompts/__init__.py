"""Prompts with private examples: resampled examples, coordinated votes, and texts word by word.

>>> from darrm.prompts import ResampledPrompts, coordinate_votes
"""

from darrm.prompts.coordination import coordinate_votes
from darrm.prompts.resampled_prompts import ResampledPrompts

__all__ = ["ResampledPrompts", "coordinate_votes"]
