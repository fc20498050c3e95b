"""The best file for a size: importance, estimated harm, the choice, and what it measures."""
