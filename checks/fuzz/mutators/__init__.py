"""What is done to a sound file. Each change draws from a `Random` and says what it did."""
