"""The HTTP surface: what the board says, as metrics, JSON and a page."""
