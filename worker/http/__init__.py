"""Bytes to requests and back: uvicorn's protocol, connections, keys, origins."""
