"""Properties of the worker and how it is: health, metrics, progress, shutdown."""
