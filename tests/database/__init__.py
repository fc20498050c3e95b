"""worker/database/: one SQLite file, and the uploaded files beside it."""
