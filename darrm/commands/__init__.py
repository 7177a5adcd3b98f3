"""What all command lines share: options, errors in one line, help."""
