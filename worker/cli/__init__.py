"""The command line: data to stdout, prose to stderr, an error is one sentence and the next step."""
