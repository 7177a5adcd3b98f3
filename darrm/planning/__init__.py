"""Plans for many queries: which release stays within a total budget and tells the truth most often."""
