"""Pictures and sounds in all APIs."""
