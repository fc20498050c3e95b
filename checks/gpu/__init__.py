"""The worker on a GPU; `make check SUITE=offload` runs it on a device that stands in for one."""
