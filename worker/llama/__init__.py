"""llama.cpp. No other package imports its bindings."""
