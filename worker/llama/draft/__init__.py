"""What guesses tokens: a second model beside the one that is served, or heads of its own file."""
