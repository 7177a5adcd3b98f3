"""What a server costs on this machine."""
