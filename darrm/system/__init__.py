"""What every door shares with the machine: files, optional libraries, figures, command lines."""
