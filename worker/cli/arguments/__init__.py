"""What each command accepts: imported for its help, without what runs it."""
