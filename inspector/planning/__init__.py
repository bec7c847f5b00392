"""Session plans: what one more launch flag would change, and what a server would hold before it is started. The core of `inspector plan`, blind to engines."""
