"""What answers before there are routes: uvicorn, the gate, the key."""
