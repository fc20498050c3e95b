"""How far a level's distributions and answers are from the reference's."""
