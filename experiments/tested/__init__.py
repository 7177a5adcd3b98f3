"""What a run costs that a private test lets leave, beside other ways of counting: `docs/reproduction/tested.md`."""
