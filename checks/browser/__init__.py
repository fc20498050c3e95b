"""A real Chromium drives the page over a real worker: `make check SUITE=page`."""
