"""Any number of classes: laws on histograms of votes, their rows and their proof."""
