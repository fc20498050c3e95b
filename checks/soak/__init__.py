"""The long run: what a worker holds after hours of good, bad and leaving clients."""
