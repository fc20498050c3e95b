"""What runs here and how it is: health, metrics, progress, shutdown."""
