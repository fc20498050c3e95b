"""What outlives the process: one SQLite file and the uploaded files beside it, in `--state-dir`."""
