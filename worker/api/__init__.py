"""What clients speak: a folder for each API, and what they have in common."""
