"""Anthropic's Messages API, which Claude Code speaks."""
