"""An EAGLE-3 drafter that has learned something: what it guesses, beside llama-server with it, and
requests of all kinds beside a worker without it."""
