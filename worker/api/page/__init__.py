"""The page at `/`: what a browser shows of this worker."""
