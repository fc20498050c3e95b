"""What clients name, in every place of every route: nothing of it is opened or connected to."""
