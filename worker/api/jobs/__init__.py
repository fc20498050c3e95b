"""The original worker's API: jobs that are accepted, read and cancelled."""
