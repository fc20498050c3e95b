"""One model over several machines: a worker, and RPC servers that hold most of its layers."""
